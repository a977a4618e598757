//! Whether a request is meant for this door, and comes from no foreign page: so a page of another origin can't have a
//! browser ask here, not even by a name of its own that leads to this address.

use http::header::{HOST, ORIGIN};
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderMap, StatusCode};
use scope_api::Problem;
use std::net::IpAddr;

/// Checks to whom a request is addressed; `local` is the address that its connection came to.
///
/// # Errors
/// 421 to another name, 403 from another origin, 400 where it can't be said.
pub(crate) fn check(parts: &Parts, local: IpAddr, hosts: &[String], is_tls: bool) -> Result<(), Problem> {
    let host = host(&parts.headers)?;
    // A target with a host of its own has to name this one, too.
    for name in [Some(&host), parts.uri.authority()].into_iter().flatten() {
        if !is_own(name.host(), local, hosts) {
            let cause = format!("{} is not a name of this door", name.host());
            let remedy = "ask by its address, or name the host: wirescope serve --host NAME";
            return Err(Problem::new(StatusCode::MISDIRECTED_REQUEST, "host", cause, remedy));
        }
    }
    let mut origins = parts.headers.get_all(ORIGIN).iter();
    match (origins.next(), origins.next()) {
        (None, _) => Ok(()),
        (Some(origin), None) if is_same(origin.as_bytes(), &host, is_tls) => Ok(()),
        _ => {
            let cause = "a page of another origin asks";
            Err(Problem::new(StatusCode::FORBIDDEN, "origin", cause, "ask without a browser"))
        }
    }
}

/// What the one `Host` says.
fn host(headers: &HeaderMap) -> Result<Authority, Problem> {
    let bad = |cause: &str| {
        let remedy = "send one Host, with the door's address or a name of --host";
        Problem::new(StatusCode::BAD_REQUEST, "host", cause, remedy)
    };
    let mut hosts = headers.get_all(HOST).iter();
    match (hosts.next(), hosts.next()) {
        (None, _) => Err(bad("it is missing")),
        (Some(_), Some(_)) => Err(bad("it comes twice")),
        (Some(host), None) => {
            let host = Authority::try_from(host.as_bytes()).map_err(|_| bad("it is no name"))?;
            if host.as_str().contains('@') { Err(bad("it is no name")) } else { Ok(host) }
        }
    }
}

fn is_own(name: &str, local: IpAddr, hosts: &[String]) -> bool {
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    let address = address.parse::<IpAddr>().map(|address| address.to_canonical());
    address.is_ok_and(|address| address == local.to_canonical())
        || name.eq_ignore_ascii_case("localhost")
        || hosts.iter().any(|host| name.eq_ignore_ascii_case(host))
}

/// Whether an origin is this door itself, as the request names it.
fn is_same(origin: &[u8], host: &Authority, is_tls: bool) -> bool {
    let scheme = if is_tls { "https" } else { "http" };
    origin.eq_ignore_ascii_case(format!("{scheme}://{host}").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderName, Request};

    fn status(uri: &str, headers: &[(HeaderName, &str)]) -> u16 {
        let mut request = Request::builder().uri(uri);
        for (header, text) in headers {
            request = request.header(header, *text);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        let hosts = ["scope.example".to_string()];
        check(&parts, "192.0.2.7".parse().unwrap(), &hosts, true)
            .map_or_else(|problem| problem.status.as_u16(), |()| 200)
    }

    #[test]
    fn only_own_names_and_the_own_origin_pass() {
        for host in ["192.0.2.7", "192.0.2.7:8443", "localhost", "LOCALHOST:1", "scope.example:8443"] {
            assert_eq!(status("/x", &[(HOST, host)]), 200, "{host}");
        }
        for host in ["192.0.2.8", "example.com", "scope.example.com", "localhost.", "[::1]", "127.0.0.1"] {
            assert_eq!(status("/x", &[(HOST, host)]), 421, "{host}");
        }
        for host in ["", "a b", "user@localhost", "localhost/x"] {
            assert_eq!(status("/x", &[(HOST, host)]), 400, "{host}");
        }
        assert_eq!(status("/x", &[]), 400);
        assert_eq!(status("/x", &[(HOST, "localhost"), (HOST, "localhost")]), 400);
        assert_eq!(status("https://example.com/x", &[(HOST, "localhost")]), 421);
        assert_eq!(status("https://localhost/x", &[(HOST, "localhost")]), 200);
        let from = |origin: &str| status("/x", &[(HOST, "scope.example:8443"), (ORIGIN, origin)]);
        assert_eq!(from("https://scope.example:8443"), 200);
        for origin in
            ["http://scope.example:8443", "https://scope.example", "https://example.com", "null", ""]
        {
            assert_eq!(from(origin), 403, "{origin}");
        }
    }
}
