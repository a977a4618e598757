//! docs/reference/routes.md, made from the table of routes: `make pages` writes it, a test holds it.

use scope_api::Role;
use scope_api::parameters::{Kind, Place, headers, parameters};
use scope_api::routes::ROUTES;
use std::fmt::Write;
use std::path::Path;

const HEAD: &str = "\
# Routes and roles

Who may ask which route of the [API](../guide/control.md): `yes`, or 403. `bound` is a token with a filter, see
[Open it to the network](../guide/serve.md#tokens); as a viewer it may ask only what a viewer may. Without a token, and with one
that is unknown, expired or revoked, each route gives 401; with a token of another instance, 403.

This page is made by `make pages` from the table of routes, which server, OpenAPI document and tests use as well.

";

const PARAMETERS: &str = "
## Parameters

Each stands in an address once at most; one that a route doesn't have is refused with 400.

| route | parameter | values | what |
|---|---|---|---|
";

const HEADERS: &str = "
## Headers

Headers that a route reads or sends of its own. Trailers come behind the body, for who sends `TE: trailers`. The keys of JSON
answers, and which route refuses what with which status, are in the OpenAPI document: `GET /api/v1/openapi.json`.

| route | header | in | what |
|---|---|---|---|
";

/// The page as it should be.
fn page() -> String {
    let roles: Vec<&str> = Role::ALL.iter().map(|role| role.word()).collect();
    let columns = roles.len() + 3;
    let mut text =
        format!("{HEAD}| route | {} | bound | what |\n|{}\n", roles.join(" | "), "---|".repeat(columns));
    for route in ROUTES {
        let may = |may: bool| if may { "yes" } else { "403" };
        let each: Vec<&str> = Role::ALL.iter().map(|role| may(*role >= route.role)).collect();
        let bound = may(route.answers_bound() && route.role <= Role::Analyst);
        let _ = writeln!(text, "| `{route}` | {} | {bound} | {} |", each.join(" | "), route.what);
    }
    text.push_str(PARAMETERS);
    for route in ROUTES {
        for parameter in parameters(route.action) {
            let values = match parameter.kind {
                Kind::Text => String::new(),
                Kind::Word(words) => format!("`{}`", words.join("`, `")),
                Kind::Flag(_) => "`true`, `false`".to_string(),
                Kind::Number(least, most, default) => {
                    let most = most.map_or(String::new(), |most| format!(" to {most}"));
                    let default = default.map_or(String::new(), |default| format!("; missing: {default}"));
                    format!("from {least}{most}{default}")
                }
            };
            let _ = writeln!(text, "| `{route}` | `{}` | {values} | {} |", parameter.name, parameter.what);
        }
    }
    text.push_str(HEADERS);
    for route in ROUTES {
        for header in headers(route.action) {
            let place = match header.place {
                Place::Request => "request",
                Place::Answer => "answer",
                Place::Head => "answer to `HEAD`",
                Place::Trailer => "trailer",
            };
            let _ = writeln!(text, "| `{route}` | `{}` | {place} | {} |", header.name, header.what);
        }
    }
    text
}

#[test]
fn the_page_of_routes_is_what_the_table_has() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/routes.md");
    if std::env::var_os("WRITE_PAGES").is_some() {
        std::fs::write(&path, page()).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(written == page(), "docs/reference/routes.md is not what the routes say: make pages writes it");
}
