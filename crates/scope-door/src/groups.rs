//! Which programs have attached and read the ring or share a group's packets, and how far each of them is.

use crate::state::State;
use scope_engine::{AttachStatus, GroupStatus};
use scope_events::Fact;
use scope_share::message::Refusal;
use serde_json::{Map, Value, json};

/// The groups of a run.
pub(crate) fn answer(state: &State) -> Value {
    match &state.attach {
        None => json!({"attach": null, "groups": []}),
        Some(attach) => of(&attach.status()),
    }
}

fn of(status: &AttachStatus) -> Value {
    let AttachStatus { path, groups, counts } = status;
    let words = Refusal::ALL.map(Refusal::word).into_iter().zip(counts.refused);
    let own = [
        ("connections", counts.connections),
        ("silent", counts.silent),
        ("too_long", counts.too_long),
        ("with_files", counts.with_files),
        ("unexpected", counts.unexpected),
        ("removed", counts.removed),
    ];
    let refused: Map<String, Value> =
        words.chain(own).map(|(word, many)| (word.to_string(), json!(many))).collect();
    let groups: Vec<Value> = groups.iter().map(|group: &GroupStatus| group.facts().write()).collect();
    let attach = path.as_ref().map(|path| json!({"path": path.to_string_lossy(), "refused": refused}));
    json!({"attach": attach, "groups": groups})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schemas::answers;
    use scope_api::routes::Action;
    use scope_engine::attach::DoorCounts;
    use std::collections::BTreeSet;

    #[test]
    fn an_answer_has_the_keys_of_its_schema() {
        let status =
            AttachStatus { path: Some("/run/x".into()), groups: Vec::new(), counts: DoorCounts::default() };
        let (answer, schema) = (of(&status), answers(Action::Groups).remove(0).1);
        let keys = |value: &Value| -> BTreeSet<String> {
            value.as_object().into_iter().flatten().map(|(key, _)| key.clone()).collect()
        };
        assert_eq!(keys(&answer), keys(&schema["properties"]));
        let refused = &schema["properties"]["attach"]["properties"]["refused"]["properties"];
        assert_eq!(keys(&answer["attach"]["refused"]), keys(refused));
    }
}
