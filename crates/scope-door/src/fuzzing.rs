//! A door for the fuzz targets, and for them alone (feature `fuzzing`), to what is made of a request that came over the socket.

use crate::dumps::Dumps;
use crate::exposition::Form;
use crate::flow_list;
use crate::holds;
use crate::hooks;
use crate::losses::Losses;
use crate::settings::Hooks;
use crate::statistics;
use http::header::ACCEPT;
use http::{HeaderMap, HeaderValue, Method};
use scope_api::fire::Fire;
use scope_api::routes::{Found, PARAMETER_BYTES_MAX, ROUTES, find};
use scope_api::trigger::Trigger;
use serde_json::Value;

/// When it is, ns.
const NOW_NS: i64 = 1_795_000_000_000_000_000;

/// Four lines: method and path, query, `Accept`, body. A path leads to a route of its method with parameters that can be
/// meant; what is read of a body is read again as it would be sent.
pub fn request(data: &[u8]) {
    let mut lines = data.splitn(4, |byte| *byte == b'\n');
    let mut line = || lines.next().unwrap_or_default();
    let (head, query, accept, body) = (line(), line(), line(), line());
    let head = String::from_utf8_lossy(head);
    let (method, path) = head.split_once(' ').unwrap_or(("GET", &head));
    if let Ok(method) = method.parse::<Method>()
        && let Found::Route(at, parameters) = find(&method, path)
    {
        let asked = if method == Method::HEAD { "GET" } else { method.as_str() };
        assert_eq!((ROUTES[at].method, ROUTES[at].path.matches('{').count()), (asked, parameters.len()));
        let is_meant = |text: &String| text.len() <= PARAMETER_BYTES_MAX && !text.contains(char::is_control);
        assert!(parameters.iter().all(is_meant), "{parameters:?}");
        for parameter in &parameters {
            assert!(Dumps::default().get(parameter, None).is_err(), "there is no dump");
        }
    }
    let query: Vec<(String, String)> = form_urlencoded::parse(query).into_owned().collect();
    let _page = Dumps::default().page(&query, None);
    let _steps = Losses::default().steps(&query, NOW_NS);
    let _top = statistics::top_question(&query);
    let _flows = flow_list::Asking::read(&query);
    let mut headers = HeaderMap::new();
    headers.extend(HeaderValue::from_bytes(accept).map(|value| (ACCEPT, value)));
    let _form = Form::wanted(&headers);
    let Ok(body) = scope_http::json::read(body) else { return };
    if let Ok(fire) = Fire::read(&body) {
        assert_eq!(Fire::read(&fire.json()), Ok(fire));
    }
    if let Ok(trigger) = Trigger::read(&body, None) {
        assert_eq!(Trigger::read(&trigger.json(), None), Ok(trigger));
    }
    let _span = holds::span(&body);
    let _statement = statistics::statement(&body);
    hooked(&body);
}

/// What a hook gives is as it stands in a filter: given once more, it stays so.
fn hooked(body: &Value) {
    let labels = Hooks::default().labels;
    let mut faults = Vec::new();
    let bodies = hooks::alerts(body).map(|(alerts, _)| alerts).unwrap_or_default();
    for alert in bodies {
        hooks::given(&labels, &str::to_string, &|label| alert.labels.get(label), &mut faults);
    }
    let given = hooks::given(&labels, &str::to_string, &|label| body.get(label), &mut faults);
    let Ok(template) = scope_filter::Template::parse("$srcIP $srcPort $proto $srcMAC $vlan") else { return };
    if let Ok(filled) = template.fill_given(&given) {
        let is_plain = |byte: u8| byte.is_ascii_hexdigit() || matches!(byte, b'.' | b':' | b' ');
        assert!(filled.bytes().all(is_plain), "{filled}");
    }
}
