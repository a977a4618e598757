//! What the system and other programs say: answers of drivers, texts of `/proc`, greetings of those who attach.

use scope_machine::nic::answers;
use scope_share::{Answer, Greeting};

/// What comes through a socket at which programs attach, on either side.
pub fn attach(data: &[u8]) {
    if let Ok(greeting) = Greeting::read(data) {
        assert_eq!(greeting.to_bytes(), data, "every byte of it is meant");
    }
    if let Ok(answer) = Answer::read(data) {
        assert_eq!(answer.to_bytes(), data, "every byte of it is meant");
    }
}

/// One byte that says how many entries are requested, then the driver's words.
pub fn ethtool(data: &[u8]) {
    let Some((&count, data)) = data.split_first() else { return };
    let count = usize::from(count);
    let words: Vec<u32> =
        data.chunks_exact(4).map(|word| u32::from_ne_bytes([word[0], word[1], word[2], word[3]])).collect();
    let driver = answers::driver(data);
    for text in [driver.name, driver.version, driver.firmware, driver.bus] {
        assert!(text.chars().all(|letter| letter.is_ascii_graphic() || letter == ' '));
    }
    let _values = (answers::rings(&words), answers::queues(&words), answers::timestamping(&words));
    for list in 0..32 {
        assert!(answers::entries(&words, list, count).is_none_or(|entries| (1..=count).contains(&entries)));
    }
    if let Ok(names) = answers::names(data, count) {
        assert_eq!(names.len(), count);
        assert!(answers::features(&words, names).len() <= count);
    }
    assert!(
        answers::counter_values(&words, count).is_ok_and(|values| values.len() == count)
            || words.len() < 2 + 2 * count
            || words[1] as usize != count
    );
}

/// Texts of `/proc`, of control groups, and an environment.
pub fn texts(data: &[u8]) {
    scope_machine::fuzzing::system_texts(data);
    scope_source::fuzzing::system_texts(data);
    scope_engine::fuzzing::system_texts(data);
    let _folder = scope_doctor::system::folder_in(data);
}
