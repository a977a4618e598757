//! Judges: whoever finds hits later than the packets come, and whom dumps of files wait for.
//!
//! A worker that finds a hit starts its dump before its clock goes on, so no window ends that the hit would have
//! extended. Another thread finds it later. Where workers can wait, it is a judge: nothing counts as settled that
//! it hasn't judged. Live runs have none, since nobody may hold them up.

use crate::lock::Mutex;
use scope_packet::Moment;
use std::sync::{Arc, Weak};

/// Up to where one of them has judged.
#[derive(Debug)]
pub struct Judge {
    /// Protected by the lock: the moment, which never falls.
    up_to: Mutex<Moment>,
}

impl Judge {
    fn new() -> Judge {
        Judge { up_to: Mutex::new(Moment::BEGIN) }
    }

    /// Everything before `moment` is judged.
    pub fn has_judged(&self, moment: Moment) {
        let mut up_to = self.up_to.lock().expect("no panic while held");
        *up_to = (*up_to).max(moment);
    }

    /// Nobody waits for it any more.
    pub fn withdraw(&self) {
        self.has_judged(Moment::END);
    }

    /// Up to where it has judged.
    pub fn up_to(&self) -> Moment {
        *self.up_to.lock().expect("no panic while held")
    }
}

/// All judges of a ring.
#[derive(Default)]
pub(crate) struct Judges {
    list: Mutex<Vec<Weak<Judge>>>,
}

impl Judges {
    pub(crate) fn add(&self) -> Arc<Judge> {
        let judge = Arc::new(Judge::new());
        let mut list = self.list.lock().expect("no panic while held");
        list.retain(|known| known.strong_count() > 0);
        list.push(Arc::downgrade(&judge));
        judge
    }

    /// What all of them have judged; the end of time where there is none.
    pub(crate) fn up_to(&self) -> Moment {
        let list = self.list.lock().expect("no panic while held");
        list.iter().filter_map(Weak::upgrade).map(|judge| judge.up_to()).min().unwrap_or(Moment::END)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_judged_is_what_all_have_judged_and_who_is_gone_has_no_say() {
        let judges = Judges::default();
        assert_eq!(judges.up_to(), Moment::END);
        let (one, other) = (judges.add(), judges.add());
        one.has_judged(Moment::new(0, 7));
        assert_eq!(judges.up_to(), Moment::BEGIN);
        other.has_judged(Moment::new(1, 3));
        assert_eq!(judges.up_to(), Moment::new(0, 7));
        one.has_judged(Moment::new(0, 5));
        assert_eq!(one.up_to(), Moment::new(0, 7), "it never falls");
        one.withdraw();
        assert_eq!(judges.up_to(), Moment::new(1, 3));
        drop(other);
        assert_eq!(judges.up_to(), Moment::END);
    }
}
