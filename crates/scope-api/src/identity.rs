//! Who asks, as the door to the network passes it on to a run: in headers that it takes from no client, and that a run
//! believes from that door alone.
//!
//! ```text
//! wirescope-name: noc-dashboard
//! wirescope-role: analyst
//! wirescope-filter: net%2010.1.0.0%2F16        (percent-encoded; missing: all packets)
//! ```

use crate::problem::Problem;
use crate::role::Role;
use http::{HeaderMap, HeaderValue, StatusCode};
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// What the names of all these headers begin with.
pub const HEADERS_PREFIX: &str = "wirescope-";
const NAME: &str = "wirescope-name";
const ROLE: &str = "wirescope-role";
const FILTER: &str = "wirescope-filter";
const REFUSED: &str = "wirescope-refused";
/// A name at most, bytes.
pub const NAME_BYTES_MAX: usize = 64;
/// A filter at most, bytes.
pub const FILTER_BYTES_MAX: usize = 4096;

/// Somebody whom a door knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The name, as audit and lists have it.
    pub name: String,
    /// What this one may do.
    pub role: Role,
    /// Only packets that match this filter are shown; `None`: all.
    pub filter: Option<String>,
}

/// A request that a door has refused, as it tells the run that was meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The name of who asked; `None`: the door knew none.
    pub name: Option<String>,
    /// The status of the refusal.
    pub status: StatusCode,
}

impl Refused {
    /// Puts it into the head of a request.
    pub fn write(&self, headers: &mut HeaderMap) {
        headers.insert(REFUSED, self.status.as_u16().into());
        if let Some(Ok(name)) = self.name.as_deref().map(HeaderValue::from_str) {
            headers.insert(NAME, name);
        }
    }

    /// Whether a head says so, and what; `None`: it doesn't, or in no form that can be meant.
    pub fn read(headers: &HeaderMap) -> Option<Refused> {
        let text = |header: &str| headers.get(header)?.to_str().ok();
        let status = StatusCode::from_bytes(text(REFUSED)?.as_bytes()).ok()?;
        let name = text(NAME).filter(|name| is_name(name)).map(str::to_string);
        Some(Refused { name, status })
    }
}

/// Whether a text may be the name of an identity or of an instance: letters, digits, `.`, `_`, `-` and `@`, at most
/// [`NAME_BYTES_MAX`], the first one no sign.
pub fn is_name(text: &str) -> bool {
    let is_fit = |byte: u8| byte.is_ascii_alphanumeric() || b"._-@".contains(&byte);
    text.len() <= NAME_BYTES_MAX
        && text.bytes().all(is_fit)
        && text.starts_with(|first: char| first.is_ascii_alphanumeric())
}

impl Identity {
    /// Puts it into the head of a request, in the place of whatever says so there.
    pub fn write(&self, headers: &mut HeaderMap) {
        let filter = self.filter.as_ref();
        let filter = filter.map(|filter| utf8_percent_encode(filter, NON_ALPHANUMERIC).to_string());
        let texts = [(NAME, Some(self.name.clone())), (ROLE, Some(self.role.to_string())), (FILTER, filter)];
        for (header, text) in texts {
            headers.remove(header);
            // Names and what is encoded are fit for a header.
            if let Some(Ok(value)) = text.map(|text| HeaderValue::from_str(&text)) {
                headers.insert(header, value);
            }
        }
    }

    /// Whether a head has any such header.
    pub fn is_said(headers: &HeaderMap) -> bool {
        headers.keys().any(|header| header.as_str().starts_with(HEADERS_PREFIX))
    }

    /// Reads it; `None`: nothing is said.
    ///
    /// # Errors
    /// It is said in part, twice, or can't be meant.
    pub fn read(headers: &HeaderMap) -> Result<Option<Identity>, Problem> {
        if !Identity::is_said(headers) {
            return Ok(None);
        }
        let bad = |header: &str, cause: &str| {
            let remedy = "only wirescope serve sends these headers: ask without them";
            Problem::new(StatusCode::BAD_REQUEST, header, cause, remedy)
        };
        let known = |header: &str| [NAME, ROLE, FILTER].contains(&header);
        let mut all = headers.keys().map(http::HeaderName::as_str);
        if let Some(other) = all.find(|header| header.starts_with(HEADERS_PREFIX) && !known(header)) {
            return Err(bad(other, "there is no such header"));
        }
        let one = |header: &str| {
            let mut values = headers.get_all(header).iter();
            match (values.next(), values.next()) {
                (None, _) => Ok(None),
                (Some(value), None) => {
                    value.to_str().map(Some).map_err(|_| bad(header, "it has signs that no header may have"))
                }
                _ => Err(bad(header, "it comes twice")),
            }
        };
        let name = one(NAME)?.filter(|name| is_name(name)).ok_or_else(|| bad(NAME, "it is no name"))?;
        let role = one(ROLE)?.and_then(Role::of).ok_or_else(|| bad(ROLE, "it is no role"))?;
        let filter = one(FILTER)?.map(|filter| {
            let text = percent_decode_str(filter).decode_utf8().map_err(|_| bad(FILTER, "it is no UTF-8"))?;
            match text.trim().is_empty() || text.len() > FILTER_BYTES_MAX || text.contains(char::is_control) {
                true => Err(bad(FILTER, "it is empty, too long, or has control characters")),
                false => Ok(text.into_owned()),
            }
        });
        let filter = filter.transpose()?;
        if filter.is_some() && role > Role::Analyst {
            return Err(bad(ROLE, "who sees only packets of a filter is an analyst at most"));
        }
        Ok(Some(Identity { name: name.to_string(), role, filter }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heads(texts: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (header, text) in texts {
            headers.append(*header, HeaderValue::from_bytes(text.as_bytes()).unwrap());
        }
        headers
    }

    #[test]
    fn what_is_written_is_read_again() {
        for filter in [None, Some("host 10.0.0.1 and (tcp or udp)"), Some("ip[0] & 0xf != 5 ü")] {
            let filter = filter.map(str::to_string);
            let identity = Identity { name: "a.b-c_d@e".to_string(), role: Role::Analyst, filter };
            let mut headers = heads(&[("wirescope-role", "admin"), ("wirescope-filter", "udp")]);
            identity.write(&mut headers);
            assert_eq!(Identity::read(&headers), Ok(Some(identity)));
        }
        assert_eq!(Identity::read(&heads(&[("host", "x")])), Ok(None));
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        let (name, role) = (("wirescope-name", "a"), ("wirescope-role", "viewer"));
        for (headers, told) in [
            (heads(&[name]), "wirescope-role: it is no role"),
            (heads(&[role]), "wirescope-name: it is no name"),
            (heads(&[name, ("wirescope-role", "root")]), "wirescope-role: it is no role"),
            (heads(&[name, name, role]), "wirescope-name: it comes twice"),
            (heads(&[("wirescope-name", "a b"), role]), "wirescope-name: it is no name"),
            (heads(&[name, role, ("wirescope-user", "x")]), "wirescope-user: there is no such header"),
            (heads(&[name, role, ("wirescope-filter", "%ff")]), "wirescope-filter: it is no UTF-8"),
            (heads(&[name, role, ("wirescope-filter", "")]), "wirescope-filter: it is empty"),
            (heads(&[name, role, ("wirescope-filter", "a%00")]), "wirescope-filter: it is empty"),
            (
                heads(&[name, ("wirescope-role", "operator"), ("wirescope-filter", "udp")]),
                "wirescope-role: who sees only",
            ),
        ] {
            let refused = Identity::read(&headers).unwrap_err().to_string();
            assert!(refused.starts_with(told), "{refused}");
        }
        for name in ["", "-a", ".a", "a/b", "a=b", "a b", "ä", &"a".repeat(65)] {
            assert!(!is_name(name), "{name}");
        }
    }
}
