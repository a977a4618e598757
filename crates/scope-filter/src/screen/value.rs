//! What is known of a register's value while a program is run over all packets of a case at once.

use super::clause::Field;
use super::numbers::Numbers;
use crate::bpf::Relation;

/// How much a load reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Size {
    Byte,
    Half,
    Word,
}

/// What is known of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    /// Bits that are 0, bits that are 1, and a mask some bit of which is 1 (0: nothing known).
    Bits { zero: u32, one: u32, any: u32 },
    /// One of these, and no field of the entry.
    OneOf(Numbers),
    /// A field of the entry, its lowest `cut` bits replaced by 0.
    Field { field: Field, cut: u32 },
    /// A 32-bit word of the IPv6 addresses: 0 to 3 of the source, 4 to 7 of the destination.
    Word(u8),
    /// Length of the IPv4 header, bytes.
    HeaderLength,
}

impl Value {
    pub fn unknown() -> Value {
        Value::Bits { zero: 0, one: 0, any: 0 }
    }

    pub fn constant(k: u32) -> Value {
        Value::Bits { zero: !k, one: k, any: 0 }
    }

    pub fn field(field: Field) -> Value {
        Value::Field { field, cut: 0 }
    }

    pub fn one_of(numbers: Numbers) -> Value {
        match *numbers.ranges() {
            [(first, last)] if first == last => Value::constant(first),
            _ => Value::OneOf(numbers),
        }
    }

    /// The value, if it is known wholly.
    pub fn as_constant(&self) -> Option<u32> {
        match *self {
            Value::Bits { zero, one, .. } if zero | one == u32::MAX => Some(one),
            _ => None,
        }
    }

    /// The value & `mask`.
    pub fn masked(&self, mask: u32) -> Value {
        match *self {
            Value::Bits { zero, one, any } => Value::Bits {
                zero: zero | !mask,
                one: one & mask,
                any: if any & !mask == 0 { any } else { 0 },
            },
            Value::Field { field, cut } => {
                let (kept, lost) = (mask & field.last(), !mask & field.last());
                match (kept, lost & lost.wrapping_add(1)) {
                    (0, _) => Value::constant(0),
                    (_, 0) => Value::Field { field, cut: cut.max(lost.trailing_ones()) },
                    _ => Value::unknown(),
                }
            }
            _ => Value::unknown(),
        }
    }
}

/// Which numbers of 0..=`last` stand in `relation` to `k` once their lowest `cut` bits are replaced by 0;
/// `None` where that isn't followed.
pub(super) fn related(relation: Relation, k: u32, cut: u32, last: u32) -> Option<Numbers> {
    let above = |k: u32| match u32::try_from(((u64::from(k) >> cut) + 1) << cut) {
        Ok(first) => Numbers::range(first, last),
        Err(_) => Numbers::none(),
    };
    let low = ((1u64 << cut) - 1) as u32;
    Some(match relation {
        Relation::Equal if k & low != 0 || k > last => Numbers::none(),
        Relation::Equal => Numbers::range(k, (k | low).min(last)),
        Relation::Greater => above(k),
        Relation::GreaterOrEqual => k.checked_sub(1).map_or(Numbers::range(0, last), above),
        Relation::AnyBit => return None,
    })
}

/// Whether the comparison of a value of which these bits are known can be true, and whether it can be false.
pub(super) fn possible(relation: Relation, k: u32, zero: u32, one: u32, any: u32) -> (bool, bool) {
    let (least, most) = (one, !zero);
    match relation {
        Relation::Equal => {
            let can = k & zero == 0 && k & one == one && (any == 0 || k & any != 0);
            (can, !(can && least == most))
        }
        Relation::Greater => (most > k, least <= k),
        Relation::GreaterOrEqual => (most >= k, least < k),
        Relation::AnyBit => (most & k != 0, one & k == 0 && (any == 0 || any & !k != 0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn holds(relation: Relation, a: u32, k: u32) -> bool {
        match relation {
            Relation::Equal => a == k,
            Relation::Greater => a > k,
            Relation::GreaterOrEqual => a >= k,
            Relation::AnyBit => a & k != 0,
        }
    }

    fn relation() -> impl Strategy<Value = Relation> {
        prop_oneof![
            Just(Relation::Equal),
            Just(Relation::Greater),
            Just(Relation::GreaterOrEqual),
            Just(Relation::AnyBit)
        ]
    }

    proptest! {
        #[test]
        fn related_numbers_are_those_for_which_the_comparison_holds(relation in relation(), k in 0u32..300, cut in 0u32..=8) {
            let Some(numbers) = related(relation, k, cut, 255) else { return Ok(()) };
            for number in 0..=255u32 {
                prop_assert_eq!(numbers.contains(number), holds(relation, number >> cut << cut, k), "{}", number);
            }
        }

        #[test]
        fn what_can_be_is_never_called_impossible(relation in relation(), k: u32, a: u32, known: u32, any: u32, mask: u32) {
            let any = if a & any == 0 { 0 } else { any };
            let value = Value::Bits { zero: !a & known, one: a & known, any };
            for (value, a) in [(value.clone(), a), (value.masked(mask), a & mask)] {
                let Value::Bits { zero, one, any } = value else { unreachable!() };
                prop_assert!(a & zero == 0 && a & one == one && (any == 0 || a & any != 0));
                for k in [k, a, k & a, a ^ 1 << (k % 32)] {
                    let (can_be_true, can_be_false) = possible(relation, k, zero, one, any);
                    let can_be = if holds(relation, a, k) { can_be_true } else { can_be_false };
                    prop_assert!(can_be, "{:?} {} {}", relation, a, k);
                }
            }
        }
    }

    #[test]
    fn the_highest_numbers_have_none_above_them() {
        assert!(related(Relation::Greater, u32::MAX, 8, u32::MAX).unwrap().is_empty());
        assert!(related(Relation::Greater, 0xffff_ff01, 8, u32::MAX).unwrap().is_empty());
        assert_eq!(
            related(Relation::Equal, 0x0a00_0000, 24, u32::MAX),
            Some(Numbers::range(0x0a00_0000, 0x0aff_ffff))
        );
        assert_eq!(related(Relation::GreaterOrEqual, 0, 0, 9), Some(Numbers::range(0, 9)));
    }

    #[test]
    fn a_field_keeps_masks_that_cut_its_end_off() {
        let field = Value::field(Field::Source);
        assert_eq!(field.masked(0xff00_0000), Value::Field { field: Field::Source, cut: 24 });
        assert_eq!(field.masked(0xff00_ff00), Value::unknown());
        assert_eq!(field.masked(u32::MAX), field);
        assert_eq!(Value::field(Field::SourcePort).masked(0xffff_0000), Value::constant(0));
    }
}
