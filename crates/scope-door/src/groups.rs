//! Which programs have attached and read the ring, and how far each of them is.

use crate::state::State;
use scope_engine::attach::GoneStatus;
use scope_engine::{AttachStatus, MemberStatus};
use scope_share::RING;
use scope_share::message::Refusal;
use scope_share::page::Standing;
use serde_json::{Map, Value, json};

/// The groups of a run.
pub(crate) fn answer(state: &State) -> Value {
    match &state.attach {
        None => json!({"attach": null, "groups": []}),
        Some(attach) => of(&attach.status()),
    }
}

fn of(status: &AttachStatus) -> Value {
    let AttachStatus { path, published, members, gone, counts } = status;
    let words = Refusal::ALL.map(Refusal::word).into_iter().zip(counts.refused);
    let own = [
        ("connections", counts.connections),
        ("silent", counts.silent),
        ("too_long", counts.too_long),
        ("with_files", counts.with_files),
        ("unexpected", counts.unexpected),
    ];
    let refused: Map<String, Value> =
        words.chain(own).map(|(word, many)| (word.to_string(), json!(many))).collect();
    let members: Vec<Value> = members.iter().map(member).collect();
    let ring = json!({"name": RING, "published": published, "members": members, "gone": gone_as_one(gone)});
    json!({"attach": {"path": path.to_string_lossy(), "refused": refused}, "groups": [ring]})
}

fn member(member: &MemberStatus) -> Value {
    let MemberStatus { number, name, pid, uid, user, standing, waits } = member;
    let Standing { given, read, missed, behind } = standing;
    let user = user.clone().unwrap_or_else(|| uid.to_string());
    json!({
        "number": number, "name": name, "pid": pid, "uid": uid, "user": user, "given": given, "read": read,
        "missed": missed, "behind": behind, "waits": waits,
    })
}

fn gone_as_one(GoneStatus { members, standing }: &GoneStatus) -> Value {
    let Standing { given, read, missed, behind } = standing;
    json!({"members": members, "given": given, "read": read, "missed": missed, "behind": behind})
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
        let standing = Standing { given: 6, read: 1, missed: 2, behind: 3 };
        let status = AttachStatus {
            path: "/run/x".into(),
            published: 7,
            members: vec![MemberStatus {
                number: 3,
                name: "a".to_string(),
                pid: 9,
                uid: 7,
                user: None,
                standing,
                waits: true,
            }],
            gone: GoneStatus { members: 2, standing },
            counts: DoorCounts::default(),
        };
        let (answer, schema) = (of(&status), answers(Action::Groups).remove(0).1);
        let keys = |value: &Value| -> BTreeSet<String> {
            value.as_object().into_iter().flatten().map(|(key, _)| key.clone()).collect()
        };
        let group = &schema["properties"]["groups"]["items"]["properties"];
        assert_eq!(keys(&answer), keys(&schema["properties"]));
        assert_eq!(keys(&answer["groups"][0]), keys(group));
        let of_member = &group["members"]["items"]["properties"];
        assert_eq!(keys(&answer["groups"][0]["members"][0]), keys(of_member));
        assert_eq!(keys(&answer["groups"][0]["gone"]), keys(&group["gone"]["properties"]));
        assert_eq!(answer["groups"][0]["members"][0]["user"], "7");
    }
}
