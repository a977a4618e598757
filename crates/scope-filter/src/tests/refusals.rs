//! What is refused, with which words, at which place.

use scope_packet::{Headers, LinkType};

use crate::libpcap::ByteOrder;
use crate::specimens::{Random, thread_time};
use crate::{Filter, FilterError, VlanRule, is_filter_word};

fn refusal(text: &str, links: &[LinkType]) -> FilterError {
    match Filter::compile(text, VlanRule::Transparent, links) {
        Ok(_) => panic!("accepted: {text}"),
        Err(error) => error,
    }
}

#[test]
fn a_syntax_error_says_its_place() {
    let check = |text: &str, at: usize| {
        let error = refusal(text, &[]);
        assert_eq!(error.at(), Some(at), "{text}: {error}");
        assert!(error.to_string().contains(&format!("at byte {at}")), "{error}");
    };
    check("tcp prot 80", 4);
    check("foo", 0);
    check("tcp and foo", 8);
    check("host 10.0.0.1 an port 80", 14);
    check("(tcp", 4);
    check("tcp)", 3);
    check("tcp port 80 and", 15);
    check("tcp port htp and host 10.0.0.1", 9);
    check("host 10.0.0.1 and port 80 and tcp[13 = 2", 37);
    check("port 99999 or udp", 5);
    check("host 10.0.0.1/24", 13);
    check("tcp § udp", 4);
    check("tcp and and udp", 8);
    check("ip[0] & 0xf foo", 12);
    // Names that have words of libpcap's refusals of link types in them.
    for name in ["support", "onlyx", "memory"] {
        check(&format!("tcp port {name}"), 9);
    }
}

#[test]
fn a_name_eaten_by_the_shell_is_suspected() {
    for text in [
        "host  and port 80",
        "tcp and host",
        "host and host",
        "src host  and dst host 10.0.0.1",
        " and tcp",
        "(src )",
        "vlan and ",
    ] {
        let message = refusal(text, &[]).to_string();
        assert!(
            message.contains("the shell may have removed")
                && message.contains("single quotes")
                && message.contains("{srcIP}"),
            "{text}: {message}"
        );
    }
    for text in ["tcp prot 80", "foo", "tcp)"] {
        assert!(!refusal(text, &[]).to_string().contains("shell"), "{text}");
    }
}

#[test]
fn what_is_missing_is_said_and_the_shell_suspected_only_where_it_left_a_blank() {
    let check = |text: &str, words: &str, by_the_shell: bool| {
        let message = refusal(text, &[]).to_string();
        assert!(
            message.contains(words) && message.contains("the shell may have removed") == by_the_shell,
            "{text}: {message}"
        );
    };
    check("port 80 or", "the text ends where an expression is expected: add one, or omit 'or'", false);
    check("port 80 and not", "omit 'not'", false);
    check("and port 80", "an expression is missing before 'and'", false);
    check("tcp and or udp", "an expression is missing before 'or'", false);
    check("tcp and  or udp", "an expression is missing before 'or'", true);
    check("tcp and ", "the text ends where an expression is expected", true);
    check("tcp port", "a value is missing after 'port'", true);
    check("vlan) or tcp", "')' closes nothing", false);
    check("(tcp)) or (udp)", "')' closes nothing", false);
}

#[test]
fn where_libpcap_can_t_filter_a_link_type_it_is_said_what_can_be_asked_there() {
    for link in [LinkType(189), LinkType(227)] {
        let message = refusal("udp port 53", &[link]).to_string();
        assert!(
            message.contains("filtering not implemented")
                && message.contains("len > 100")
                && message.contains("''"),
            "{message}"
        );
        for text in ["link[0] = 1", "len > 100", ""] {
            assert!(Filter::compile(text, VlanRule::Transparent, &[link]).is_ok(), "{text}");
        }
    }
    let message = refusal("len > 100", &[LinkType(9999)]).to_string();
    assert!(message.contains("only the empty filter") && !message.contains("link[0]"), "{message}");
    let message = refusal("dst 10.0.0.0/8", &[]).to_string();
    assert!(message.contains("did you mean:\n  dst net 10.0.0.0/8"), "{message}");
    let message = refusal("upd\nport 53", &[]).to_string();
    assert!(message.ends_with("did you mean:\n  udp port 53"), "{message}");
    let message = refusal("vlan 7", &[LinkType::RAW]).to_string();
    assert!(!message.contains("did you mean") && !message.contains("link[0]"), "{message}");
}

#[test]
fn a_template_name_in_a_plain_filter_is_explained() {
    for text in ["host $srcIP", "host {srcIP}", "host $dstIP and tcp"] {
        let message = refusal(text, &[]).to_string();
        assert!(message.contains("dump templates"), "{text}: {message}");
    }
}

#[test]
fn a_link_type_that_lacks_a_field_is_named_with_libpcaps_words() {
    let message = refusal("vlan 7", &[LinkType::RAW, LinkType::LINUX_SLL]).to_string();
    assert!(
        message.contains("link type RAW: no VLAN support for Raw IP") && message.contains("LINUX_SLL"),
        "{message}"
    );
    let message = refusal("src host 10.0.0.1 and src host 10.0.0.2", &[]).to_string();
    assert!(message.contains("rejects all packets"), "{message}");
    let message = refusal("inbound", &[]).to_string();
    assert!(
        message.contains("inbound/outbound not supported on Ethernet") && !message.contains("savefiles"),
        "{message}"
    );
}

#[test]
fn where_only_some_link_types_compile_the_filter_never_matches_on_the_others() {
    let links = [LinkType::RAW, LinkType::ETHERNET];
    let filter = Filter::compile("ether host 02:00:00:00:00:01", VlanRule::Transparent, &links).unwrap();
    assert!(filter.compiles_for(LinkType::ETHERNET) && !filter.compiles_for(LinkType::RAW));
    assert!(!filter.for_link(LinkType::RAW).matches(&Headers::default(), &[0x45; 40], 40));
}

#[test]
fn everything_matches_on_link_types_that_libpcap_does_not_know() {
    let filter = Filter::compile("", VlanRule::Transparent, &[]).unwrap();
    assert!(filter.is_everything());
    assert!(filter.for_link(LinkType(9999)).matches(&Headers::default(), &[], 0));
}

#[test]
fn more_link_types_than_are_kept_still_answer() {
    let filter = Filter::compile("greater 10", VlanRule::Transparent, &[]).unwrap();
    let answers = || -> Vec<_> {
        let answer = |link| filter.for_link(LinkType(link)).matches(&Headers::default(), &[0; 20], 20);
        (104..250).map(answer).collect()
    };
    let first = answers();
    assert!(first.iter().filter(|&&matched| matched).count() > 64);
    assert_eq!(answers(), first);
}

#[test]
fn hostile_texts_are_refused_without_harm() {
    for text in [
        "\0",
        "tcp \0 udp",
        "\\",
        "$",
        "'",
        "{",
        "host $",
        &"not ".repeat(16_000),
        &"(".repeat(60_000),
        &"tcp or ".repeat(9000),
    ] {
        let _ = refusal(text, &[LinkType::ETHERNET]).to_string();
    }
}

/// `part` repeated with `joined` between, up to so many bytes; `{}` in it is a number.
fn repeated(part: &str, joined: &str, bytes: usize) -> String {
    let mut text = String::new();
    for n in 0.. {
        let next = part.replace("{}", &(n % 250 + 1).to_string()).replace("{16}", &format!("{:x}", n + 1));
        if text.len() + joined.len() + next.len() > bytes {
            return text;
        }
        text.push_str(if n == 0 { "" } else { joined });
        text.push_str(&next);
    }
    unreachable!("every part takes a byte")
}

#[test]
fn the_longest_texts_compile_or_are_refused_in_bounded_time() {
    let longest = crate::words::TEXT_BYTES_MAX;
    let optimised = crate::libpcap::OPTIMISED_BYTES_MAX;
    let parts = [
        ("host 10.{}.0.{}", " or "),
        ("port 1{}", " or "),
        ("host 2001:db8::{16}", " or "),
        ("net 10.{}.0.0/16", " and not "),
        ("src net 2001:db8:{16}::/48", " or "),
        ("tcp[{}] = {}", " or "),
        ("ip[{}]", " + "),
        ("(ip[ip[{}]] & 3 = 1)", " and "),
        ("vlan", " or "),
        ("not", " "),
        ("ip6 protochain {}", " or "),
    ];
    for (part, joined) in parts {
        for bytes in [optimised, longest, 1 << 20] {
            let text = repeated(part, joined, bytes);
            let text = if part == "ip[{}]" {
                format!("{} = 1", &text[..text.len().saturating_sub(9)])
            } else {
                text
            };
            let before = thread_time();
            let outcome = Filter::compile(&text, VlanRule::Transparent, &[LinkType::ETHERNET]);
            let message = match &outcome {
                Ok(filter) => format!("{:?}", filter.make_native()),
                Err(error) => error.to_string().chars().take(80).collect(),
            };
            let seconds = (thread_time() - before).as_secs_f64();
            eprintln!("{bytes} bytes of '{part}': {seconds:.3} s, {message}");
            assert!(seconds < 30.0, "{bytes} bytes of '{part}' take {seconds} s");
            assert_eq!(matches!(outcome, Err(FilterError::TooLong { .. })), bytes > longest, "{part}");
        }
    }
}

/// The place of the fault was once searched for half a minute: the time was looked at between prefixes, not
/// between endings.
#[test]
fn the_fault_at_the_end_of_a_long_text_is_refused_in_bounded_time() {
    let text = repeated("host 10.0.{}.1", " or ", crate::words::TEXT_BYTES_MAX - 10) + " or or";
    let before = thread_time();
    let error = refusal(&text, &[]);
    let seconds = (thread_time() - before).as_secs_f64();
    assert!(seconds < 15.0, "{seconds} s");
    let (at, message) = (error.at().unwrap(), error.to_string());
    assert!(at >= text.len() - 2 || message.contains("there or later"), "{message}");
}

#[test]
fn no_text_makes_libpcap_look_up_a_host_or_a_net() {
    let mut random = Random::new(7);
    let parts = [
        "host",
        "net",
        "gateway",
        "ether",
        "ip",
        "port",
        "proto",
        "(",
        ")",
        "[",
        "]",
        "and",
        "or",
        "not",
        "!",
        "1",
        "1.2.3.4",
        "::1",
        "tcp",
        "vlan",
        "http",
        "gorp",
        "a-b.c",
        "=",
        "<<",
        "$x",
        "é",
        "\\tcp",
        ":",
        "src",
        "dst",
        "1.2.3.4.5",
        "llc",
        "/",
        "mask",
        "1-x",
        "02:00:00:00:00:01",
        "len",
        "broadcast",
        "type",
        "mgt",
        "address1",
        "ra",
        "fe80::1g",
        "0xzz",
        "on",
        "12345678901g",
        "f00:g",
    ];
    for _ in 0..60_000 {
        let text: Vec<_> = (0..1 + random.below(8)).map(|_| random.pick(&parts)).collect();
        let text = text.join(random.pick(&[" ", " ", ""]));
        if crate::words::check(&text).is_ok()
            && let Err(cause) = crate::libpcap::compile(&text, LinkType::ETHERNET, ByteOrder::Native)
        {
            let looked_up = ["unknown host", "unknown network", "unknown ether host"]
                .iter()
                .any(|words| cause.starts_with(words));
            assert!(!looked_up, "{text}: {cause}");
        }
    }
}

#[test]
fn generated_texts_are_refused_with_words_and_a_place_inside() {
    let mut random = Random::new(8);
    let parts =
        ["host", "port", "(", ")", "and", "not", "1", "1.2.3.4", "tcp", "vlan", "http", "$srcIP", "é", "src"];
    for _ in 0..300 {
        let text: Vec<_> = (0..random.below(9)).map(|_| random.pick(&parts)).collect();
        let text = text.join(" ");
        if let Err(error) = Filter::compile(&text, VlanRule::Transparent, &[]) {
            assert!(!error.to_string().is_empty());
            assert!(
                error.at().is_none_or(|at| at <= text.len() && text.is_char_boundary(at)),
                "{text}: {error}"
            );
        }
    }
}

#[test]
fn filters_go_from_thread_to_thread() {
    fn is_shared<T: Send + Sync + Clone>() {}
    is_shared::<Filter>();
    is_shared::<crate::Predicate>();
    is_shared::<crate::Template>();
}

#[test]
fn words_of_the_language_are_known() {
    for word in ["tcp", "host", "and", "vlan", "tcp-syn", "len"] {
        assert!(is_filter_word(word), "{word}");
    }
    for word in ["", " ", "tc", "web", "Tcp", "tcp udp"] {
        assert!(!is_filter_word(word), "{word}");
    }
}

#[test]
fn libpcap_tells_its_version() {
    assert!(crate::libpcap_version().starts_with("libpcap version "));
}
