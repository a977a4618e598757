//! `wirescope flows`: records of flows by a filter, once or as they come: a line each, JSON or CSV.
//!
//! 1. The command line is understood, the filter compiled, what is to be asked looked at; or all faults are told.
//! 2. All rights are given up but reading the database.
//! 3. Records are read and written one by one. With `--follow` the database is looked at again and again, up to `--to`.

mod table;

use crate::args::FlowsArgs;
use crate::plan::faults::Faults;
use crate::reading::{self, Stop};
use crate::stats::{database, give_up_rights, no_result};
use crate::stdio::warn_of_closed_stdout;
use crate::{DONE, NoResult, UNDONE, told};
use jiff::tz::TimeZone;
use scope_answer::SpanWords;
use scope_config::Settings;
use scope_events::now_ns;
use scope_fault::Fault;
use scope_filter::FlowFilter;
use scope_stats::asking::flows::{FlowColumns, FlowQuestion, FlowRecord};
use scope_stats::asking::{AskError, Database, Watch};
use std::io::{self, BufWriter, StdoutLock, Write};
use std::ops::ControlFlow;
use std::time::Duration;
use table::Table;

/// How often a database that is followed is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// The form of the records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Table,
    Jsonl,
    Csv,
}

impl Form {
    const WORDS: [(&'static str, Form); 3] =
        [("table", Form::Table), ("jsonl", Form::Jsonl), ("csv", Form::Csv)];
}

/// What is asked for, understood.
struct Asked {
    database: Database,
    question: FlowQuestion,
    /// Also those that are there already.
    with_past: bool,
    form: Form,
}

/// Answers. Exit codes: 0 all that there is was written, 1 something couldn't be read or written, 2 refused.
pub fn flows(args: &FlowsArgs) -> u8 {
    warn_of_closed_stdout();
    let asked = match understand(args) {
        Ok(asked) => asked,
        Err(faults) => return told(Err(NoResult::Refused(faults))),
    };
    let stop = match Stop::follow() {
        Ok(stop) => stop,
        Err(error) => return told(Err(NoResult::Failed(Fault::of_thing("signals").error(&error)))),
    };
    if let Err(no) = give_up_rights(&asked.database, args.follow, None) {
        return told(Err(no));
    }
    let ended = answer(&asked, args.follow, &stop);
    match (ended, stop.code()) {
        // Following has no other end.
        (_, Some(_)) if args.follow => DONE,
        (_, Some(code)) => code,
        (Ok(()), None) => DONE,
        (Err(Ended::Asked(error)), None) => told(Err(no_result(error))),
        (Err(Ended::Written(error)), None) if error.kind() == io::ErrorKind::BrokenPipe => DONE,
        (Err(Ended::Written(error)), None) => {
            crate::speech::say_fault(&Fault::of_thing("standard output").error(&error));
            UNDONE
        }
    }
}

fn understand(args: &FlowsArgs) -> Result<Asked, Vec<Fault>> {
    let settings = Settings::default();
    let mut faults = Faults::new(&settings);
    let database = database(&args.db, &mut faults);
    let words = SpanWords { from: args.from.as_deref(), to: args.to.as_deref(), ..SpanWords::default() };
    let span = reading::span(&words, &mut faults);
    let filter =
        FlowFilter::compile(&args.expression.join(" ")).map_err(|error| faults.add(error.fault())).ok();
    let form = Form::WORDS.into_iter().find(|(word, _)| *word == args.format).map(|(_, form)| form);
    if form.is_none() {
        let fault = Fault::of("format").value(&args.format, "is no form of flows");
        faults.add(fault.remedy("write table, jsonl or csv"));
    }
    match (database, filter, form) {
        (Some(database), Some(filter), Some(form)) if faults.is_empty() => {
            let question = FlowQuestion { filter, span_ns: (span.from_ns, span.to_ns) };
            let with_past = !args.follow || args.from.is_some();
            Ok(Asked { database, question, with_past, form })
        }
        _ => Err(faults.into_vec()),
    }
}

/// What ended an answer before its end.
enum Ended {
    Asked(AskError),
    Written(io::Error),
}

impl From<AskError> for Ended {
    fn from(error: AskError) -> Ended {
        Ended::Asked(error)
    }
}

fn answer(asked: &Asked, follows: bool, stop: &Stop) -> Result<(), Ended> {
    let Asked { database, question, with_past, form } = asked;
    let columns = FlowColumns::known().map_err(|error| AskError::unread(database.path(), &error))?;
    let mut lines = Lines::new(*form, columns);
    let watch = Watch::until(stop.flag.clone());
    let mut place = match with_past {
        true => database.flows(question, &watch, &mut |record| lines.add(record))?,
        false => database.flows_end(&watch)?,
    };
    lines.flush().map_err(Ended::Written)?;
    let mut goes_on = follows;
    while goes_on && stop.code().is_none() {
        // What is written up to the end of the span is seen by the look behind it.
        goes_on = now_ns() < question.span_ns.1;
        if goes_on {
            std::thread::sleep(LOOK_EVERY);
        }
        database.flows_since(&mut place, question, &watch, &mut |record| lines.add(record))?;
        lines.flush().map_err(Ended::Written)?;
    }
    Ok(())
}

/// Records on standard output.
struct Lines {
    form: Form,
    columns: FlowColumns,
    table: Table,
    out: BufWriter<StdoutLock<'static>>,
    has_begun: bool,
    /// Why nothing more is written.
    broken: Option<io::Error>,
}

impl Lines {
    fn new(form: Form, columns: FlowColumns) -> Lines {
        let (table, out) = (Table::new(TimeZone::system()), BufWriter::new(io::stdout().lock()));
        Lines { form, columns, table, out, has_begun: false, broken: None }
    }

    /// What stands above the records, once something was read.
    fn begin(&mut self) -> io::Result<()> {
        if std::mem::replace(&mut self.has_begun, true) {
            return Ok(());
        }
        match self.form {
            Form::Table => self.out.write_all(Table::HEAD.as_bytes()),
            Form::Jsonl => Ok(()),
            Form::Csv => self.out.write_all(self.columns.csv_head().as_bytes()),
        }
    }

    fn add(&mut self, record: &FlowRecord) -> ControlFlow<()> {
        let begun = self.begin();
        let Lines { form, columns, table, out, broken, .. } = self;
        let line = match form {
            Form::Table => table.lines(columns, record),
            Form::Jsonl => columns.json_line(record),
            Form::Csv => columns.csv_line(record),
        };
        match begun.and_then(|()| out.write_all(line.as_bytes())) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                *broken = Some(error);
                ControlFlow::Break(())
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.broken.take() {
            Some(error) => Err(error),
            None => self.begin().and_then(|()| self.out.flush()),
        }
    }
}
