//! Numbers as people read them.

/// A number with its thousands set apart: `1,234,567`.
pub fn number(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 packet`, `2 packets`.
pub fn counted(value: u64, noun: &str) -> String {
    format!("{} {noun}{}", number(value), if value == 1 { "" } else { "s" })
}
