//! Files of any bytes: faults with their lines, never a panic; what holds is written so that it is read
//! again.

use proptest::prelude::*;
use scope_config::{Given, Key, Keys, Kind, Settings, Shape, Written};
use std::path::Path;

fn keys() -> Keys {
    const SHAPE: Shape = Shape {
        main: "expr",
        more: &[("name", Kind::Text), ("before", Kind::Amount), ("single", Kind::Switch)],
        instead: &[],
    };
    let key = |name: &str, kind, shape| Key { name: name.to_string(), kind, default: None, shape };
    Keys(vec![
        key("ring", Kind::Amount, None),
        key("quiet", Kind::Switch, None),
        key("verbose", Kind::Count, None),
        key("out", Kind::Text, None),
        key("trigger", Kind::List, Some(SHAPE)),
        key("source", Kind::List, None),
    ])
}

fn check(text: &str) -> Result<(), TestCaseError> {
    let path = Path::new("junk.toml");
    match Written::parse(path, text, &keys()) {
        Ok(written) => {
            let settings = Settings::merge(&keys(), Some(written), &Given::new());
            let told = settings.to_toml();
            let again = Written::parse(path, &told, &keys());
            prop_assert!(
                again.is_ok(),
                "{text:?} was told as {told:?}: {:?}",
                again.err().map(|error| error.faults)
            );
            prop_assert_eq!(
                Settings::merge(&keys(), again.ok(), &Given::new()).arguments(None),
                settings.arguments(None)
            );
        }
        Err(error) => {
            let lines = text.split('\n').count();
            prop_assert!(!error.faults.is_empty());
            for fault in &error.faults {
                prop_assert!(fault.line().is_some_and(|line| (1..=lines).contains(&line)), "{fault}");
                prop_assert!(fault.to_string().starts_with("junk.toml:"), "{fault}");
            }
            let in_order = error.faults.is_sorted_by_key(|fault| fault.line());
            prop_assert!(in_order, "{:?}", error.faults);
            for fault in &error.faults {
                prop_assert_eq!(fault.to_json()["at"]["line"].as_u64(), fault.line().map(|line| line as u64));
            }
        }
    }
    Ok(())
}

const PIECES: [&str; 30] = [
    "ring",
    "quiet",
    "verbose",
    "out",
    "source",
    "trigger",
    "[[trigger]]",
    "[ring]",
    "[[x]]",
    "name",
    "expr",
    "before",
    "single",
    " = ",
    "=",
    "\n",
    "\n",
    "\"a b\"",
    "'c'",
    "5",
    "-5",
    "5.5e300",
    "true",
    "2020-01-01",
    "[\"x\", \"y\"]",
    "[]",
    "{ a = 1 }",
    "\"\"\"",
    "\u{e9}\u{202e}",
    "nan",
];

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "\\PC{0,200}") {
        check(&text)?;
    }

    #[test]
    fn no_pieces_of_right_files_make_it_panic(picked in proptest::collection::vec(0..PIECES.len(), 0..40)) {
        check(&picked.iter().map(|&at| PIECES[at]).collect::<String>())?;
    }

    #[test]
    fn no_damage_of_a_right_file_makes_it_panic(at in 0usize..120, with in any::<char>(), cut in 0usize..120) {
        let file = "ring = \"8GiB\"\nquiet = true\nverbose = 2\nsource = [\"a\", \"b\"]\n[[trigger]]\nname = \
            \"dns\"\nexpr = \"port 53\"\nbefore = 5\nsingle = true\n";
        let damaged: String = file.char_indices().map(|(place, letter)| if place == at { with } else { letter }).collect();
        check(&damaged)?;
        check(&damaged.chars().take(cut).collect::<String>())?;
    }
}
