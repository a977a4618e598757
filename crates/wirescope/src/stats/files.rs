//! `wirescope stats files`: the files of a database, the oldest first, a line each or as one object.

use super::{database, give_up_rights, no_result};
use crate::args::StatsFilesArgs;
use crate::plan::faults::Faults;
use crate::{NoResult, told};
use scope_config::Settings;
use scope_spelling::figures::size;
use scope_spelling::printable::json_line;
use scope_spelling::time::between;
use scope_stats::asking::FileFacts;
use serde_json::{Value, json};

/// Lists them.
pub fn files(args: &StatsFilesArgs) -> u8 {
    let settings = Settings::default();
    let mut faults = Faults::new(&settings);
    let Some(database) = database(&args.db, &mut faults) else {
        return told(Err(NoResult::Refused(faults.into_vec())));
    };
    told(give_up_rights(&database, false, None).and_then(|()| {
        let facts = database.facts().map_err(no_result)?;
        Ok(match args.json {
            true => {
                let files: Vec<Value> = facts.iter().map(FileFacts::to_json).collect();
                format!("{}\n", json_line(&json!({"files": files}).to_string()))
            }
            false => facts.iter().map(line).collect(),
        })
    }))
}

fn line(facts: &FileFacts) -> String {
    let span = facts.span_ns.map_or("no interval yet".to_string(), |(from, to)| between(from, "to", to));
    let state = if facts.is_closed { "closed" } else { "open" };
    format!("{}  {span}  {}  {state}\n", facts.id, size(facts.bytes))
}
