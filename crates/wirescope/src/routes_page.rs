//! docs/reference/routes.md, made from the table of routes: `make pages` writes it, a test holds it.

use scope_api::Role;
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
