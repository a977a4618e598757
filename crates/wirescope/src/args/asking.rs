//! The flags of the commands that ask a running instance, and of the door that lets others ask it.

use super::Words;
use crate::help;
use clap::{Args, Subcommand, ValueHint};
use std::path::PathBuf;

/// The door to the network of an instance that is asked.
#[derive(Debug, Args)]
pub struct DoorArgs {
    /// A door to the network in its place, such as https://scope:8443, or https://scope:8443/api/v1/instances/NAME
    #[arg(long, value_name = "URL", conflicts_with = "control")]
    pub url: Option<String>,
    /// The file with the token for it; its first line is the token
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "url")]
    pub token_file: Option<PathBuf>,
    /// The certificates, as PEM, that may have signed that of --url [default: those of this system]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "url")]
    pub tls_ca: Option<PathBuf>,
    /// The SHA-256 of the certificate of --url, whoever has signed it
    #[arg(long, value_name = "DIGITS", requires = "url", conflicts_with = "tls_ca")]
    pub tls_fingerprint: Option<String>,
    /// The client certificate that says who asks, in the place of a token, as PEM
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "url", requires = "tls_client_key")]
    pub tls_client_cert: Option<PathBuf>,
    /// Its private key, as PEM
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "url", requires = "tls_client_cert")]
    pub tls_client_key: Option<PathBuf>,
}

/// Which running instance is asked.
#[derive(Debug, Args)]
pub struct AskArgs {
    /// The instance's socket [default: that of the only instance that this user may ask]
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub control: Option<PathBuf>,
    #[command(flatten)]
    pub door: DoorArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `wirescope serve`.
#[derive(Debug, Args)]
#[command(override_usage = help::SERVE_USAGE, after_help = help::SERVE_EXAMPLES)]
pub struct ServeArgs {
    /// The control socket of a running instance, and its name in routes; may be given several times [default: the
    /// name of the socket without its ending]
    #[arg(long, value_name = "[NAME=]PATH", value_hint = ValueHint::FilePath, required = true)]
    pub control: Vec<String>,
    /// Where to listen, such as 127.0.0.1:8080; any other address than loopback needs TLS
    #[arg(long, value_name = "ADDR:PORT", allow_hyphen_values = true)]
    pub listen: String,
    /// The file of tokens; see wirescope token
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub tokens: PathBuf,
    /// The certificate, and those above it, as PEM; read again on SIGHUP
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub tls_cert: Option<PathBuf>,
    /// Its private key, as PEM; read again on SIGHUP
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub tls_key: Option<PathBuf>,
    /// Make a certificate at the start, for a first try; its fingerprint is printed
    #[arg(long)]
    pub tls_self_signed: bool,
    /// The certificates, as PEM, that may have signed those of clients: such a certificate can say who asks, in the place
    /// of a token; read again on SIGHUP
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub tls_client_ca: Option<PathBuf>,
    /// The lists (CRLs), as PEM, of clients' certificates that were revoked, one of each CA; read again on SIGHUP
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub tls_client_crl: Option<PathBuf>,
    /// A name by which it may be asked, besides localhost and its address; may be given several times
    #[arg(long, value_name = "NAME", allow_hyphen_values = true)]
    pub host: Vec<String>,
    /// User to become when started as root: NAME, UID or UID:GID [default: wirescope-serve where there is such a user, else
    /// the owner of the socket]
    #[arg(long, value_name = "NAME", allow_hyphen_values = true)]
    pub user: Option<String>,
    /// Connections at once; one address may have three quarters of them
    #[arg(long, value_name = "N", default_value = "256", allow_hyphen_values = true)]
    pub connections: String,
    /// Requests of one token per second; twice as many may come at once
    #[arg(long, value_name = "N", default_value = "100", allow_hyphen_values = true)]
    pub requests_per_s: String,
    /// Format of standard error: lines of text, or one JSON object per line
    #[arg(long, value_name = "FORM", default_value = "text", value_parser = Words(&["text", "json"]))]
    pub log_format: String,
    /// Try what must not be possible any more; one JSON object on standard output
    #[arg(long, hide = true)]
    pub rights_selftest: bool,
    /// Say so on standard output once it answers, and end with standard input
    #[arg(long, hide = true)]
    pub beside_run: bool,
}

/// `wirescope token`.
#[derive(Debug, Subcommand)]
pub enum TokenVerb {
    /// Make a token, and print it, once; or name whose a client certificate is
    #[command(after_help = help::TOKEN_EXAMPLES)]
    Add(TokenAddArgs),
    /// List the tokens, with their last use
    #[command(after_help = help::TOKEN_EXAMPLES)]
    List {
        /// The file of tokens
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        tokens: PathBuf,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Revoke a token, or a client certificate: from the next request on it is no good
    #[command(after_help = help::TOKEN_EXAMPLES)]
    Revoke {
        /// Its name
        #[arg(value_name = "NAME")]
        name: String,
        /// The file of tokens
        #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
        tokens: PathBuf,
    },
}

/// `wirescope token add`.
#[derive(Debug, Args)]
pub struct TokenAddArgs {
    /// What may be asked with it: viewer, analyst, operator or admin
    #[arg(long, value_name = "ROLE", value_parser = Words(&["viewer", "analyst", "operator", "admin"]))]
    pub role: String,
    /// The name of whoever gets it, as it stands in audits
    #[arg(long, value_name = "NAME")]
    pub name: String,
    /// From when on it is no good: how long from now, such as 30d, or a time
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub expires: Option<String>,
    /// Show only packets that match this, in the language of tcpdump; the role is analyst at most
    #[arg(long, value_name = "EXPR", allow_hyphen_values = true)]
    pub filter: Option<String>,
    /// The only instance that may be asked, by its name in wirescope serve --control
    #[arg(long, value_name = "NAME")]
    pub instance: Option<String>,
    /// Make no token: whoever has this client certificate, a PEM file, may ask by it; see wirescope serve --tls-client-ca
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub certificate: Option<PathBuf>,
    /// The file of tokens; it is made where it isn't there
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub tokens: PathBuf,
}

/// `wirescope triggers`.
#[derive(Debug, Subcommand)]
pub enum TriggersVerb {
    /// List them, with what became of their hits
    #[command(after_help = help::ASK_EXAMPLES)]
    List(AskArgs),
    /// Add one, until the configuration is read again
    #[command(after_help = help::ASK_EXAMPLES)]
    Add(TriggerWords),
    /// Change one, until the configuration is read again: what isn't said stays
    #[command(after_help = help::ASK_EXAMPLES)]
    Change(TriggerWords),
    /// Remove one, until the configuration is read again; its dumps go on
    #[command(after_help = help::ASK_EXAMPLES)]
    Remove(TriggerArgs),
    /// Let one fire, until it is ordered otherwise
    #[command(after_help = help::ASK_EXAMPLES)]
    Arm(TriggerArgs),
    /// Keep one from firing, until it is armed, or the configuration is read again
    #[command(after_help = help::ASK_EXAMPLES)]
    Disarm(TriggerArgs),
}

/// A trigger in words.
#[derive(Debug, Args)]
pub struct TriggerWords {
    /// Its name
    #[arg(value_name = "NAME")]
    pub name: String,
    /// What it fires at: a filter in the language of tcpdump, or a condition such as 'signal(pps) > 5000/s'
    #[arg(long, value_name = "EXPR", allow_hyphen_values = true)]
    pub filter: Option<String>,
    /// Of a filter's packets: what has to hold for their flow, for the first time, such as 'rtt > 200ms'
    #[arg(long, value_name = "COND", allow_hyphen_values = true)]
    pub when: Option<String>,
    /// What its dumps keep: a filter, or a template such as 'host $srcIP'
    #[arg(long, value_name = "TEMPLATE", allow_hyphen_values = true)]
    pub dump: Option<String>,
    /// How far back they reach
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub before: Option<String>,
    /// How far on
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub after: Option<String>,
    /// How long behind a fire it starts no new dump
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub holdoff: Option<String>,
    /// For hits with the same of these values, such as '$srcIP'
    #[arg(long, value_name = "TEMPLATE", allow_hyphen_values = true)]
    pub holdoff_key: Option<String>,
    /// Disarm it after its first fire; =false for one that fires again and again
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub single: Option<bool>,
    /// Fire it by itself where nothing has fired it for this long; off for one that doesn't
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub auto: Option<String>,
    /// Which instance.
    #[command(flatten)]
    pub ask: AskArgs,
}

/// One trigger of a running instance.
#[derive(Debug, Args)]
pub struct TriggerArgs {
    /// Its name
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Which instance.
    #[command(flatten)]
    pub ask: AskArgs,
}

/// `wirescope fire`.
#[derive(Debug, Args)]
#[command(after_help = help::FIRE_EXAMPLES)]
pub struct FireArgs {
    /// The trigger to fire, as if its condition held now [default: a dump of its own, by hand]
    #[arg(value_name = "NAME", conflicts_with_all = ["filter", "before", "after", "note"])]
    pub name: Option<String>,
    /// Which packets go into the dump, in the language of tcpdump [default: all]
    #[arg(long, value_name = "EXPR", allow_hyphen_values = true)]
    pub filter: Option<String>,
    /// How far back it reaches, such as 30s [default: --before of the run]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub before: Option<String>,
    /// How far on [default: 0]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub after: Option<String>,
    /// Why, in one line: it stands in the dump and in the log
    #[arg(long, value_name = "TEXT")]
    pub note: Option<String>,
    /// Wait until the dump is finished
    #[arg(long)]
    pub wait: bool,
    /// Wait, and write the dump into this new file, too; '-' is standard output
    #[arg(short = 'w', long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub write: Option<PathBuf>,
    /// Which instance.
    #[command(flatten)]
    pub ask: AskArgs,
}

/// `wirescope dumps`.
#[derive(Debug, Subcommand)]
pub enum DumpsVerb {
    /// List them, the oldest first
    #[command(after_help = help::DUMPS_EXAMPLES)]
    List(AskArgs),
    /// Show one
    #[command(after_help = help::DUMPS_EXAMPLES)]
    Show {
        /// Its number.
        #[arg(value_name = "ID")]
        id: u64,
        /// Which instance.
        #[command(flatten)]
        ask: AskArgs,
    },
    /// Get the file of a finished one
    #[command(after_help = help::DUMPS_EXAMPLES)]
    Get {
        /// Its number.
        #[arg(value_name = "ID")]
        id: u64,
        /// The file of this link type, where the dump has several
        #[arg(long, value_name = "TYPE")]
        link_type: Option<String>,
        /// Write it into this new file; '-' is standard output
        #[arg(short = 'w', long, value_name = "FILE", value_hint = ValueHint::FilePath, default_value = "-")]
        write: PathBuf,
        /// Which instance.
        #[command(flatten)]
        ask: AskArgs,
    },
    /// End the window of an open one: it is finished with what has come
    #[command(after_help = help::DUMPS_EXAMPLES)]
    End {
        /// Its number.
        #[arg(value_name = "ID")]
        id: u64,
        /// Which instance.
        #[command(flatten)]
        ask: AskArgs,
    },
    /// Remove the files of a finished one
    #[command(after_help = help::DUMPS_EXAMPLES)]
    Delete {
        /// Its number.
        #[arg(value_name = "ID")]
        id: u64,
        /// Which instance.
        #[command(flatten)]
        ask: AskArgs,
    },
}
