//! Whom a request's token or certificate names, and how often that one may ask.

use crate::clients::Certificate;
use crate::last_use::{self, LastUses};
use crate::settings::{Line, Say, TokenSettings};
use crate::token_file::{self, ReadError};
use crate::tokens::{Token, Tokens};
use http::header::AUTHORIZATION;
use http::{HeaderMap, StatusCode};
use scope_api::Problem;
use scope_spelling::printable::shell_word;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What a token stands behind.
const SCHEME: &str = "Bearer ";
/// So much of a second's requests may come at once.
const BURST_S: f64 = 2.0;

/// Requests of one identity at once, those included whose answer goes on.
const AT_ONCE_MAX: usize = 16;

/// How often the file of tokens is looked at for answers that are under way.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Now, ns since the epoch.
pub(crate) fn now_ns() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

/// All who may ask.
pub(crate) struct Askers {
    file: Mutex<TokensNow>,
    requests_per_s: f64,
    asked: Mutex<Asked>,
    /// Where last uses are noted.
    used: Option<File>,
}

/// The file of tokens as it was last seen.
struct TokensNow {
    file: TokenSettings,
    say: Say,
    /// Whether it can't be read, and that was said.
    is_bad: bool,
    /// Which file that was, and when it was written.
    seen: Option<(u64, u64, i64, i64)>,
    tokens: Option<Tokens>,
    /// When it was looked at last.
    looked: Option<Instant>,
}

/// By the id of a token: at most as many as there are tokens.
#[derive(Default)]
struct Asked {
    buckets: HashMap<String, Bucket>,
    uses: LastUses,
    /// Uses that aren't noted yet.
    is_new: bool,
}

/// What one may still ask, in requests.
struct Bucket {
    left: f64,
    at: Instant,
    /// Places for [`AT_ONCE_MAX`].
    places: Arc<Semaphore>,
}

impl Askers {
    /// Those of this file.
    ///
    /// # Errors
    /// It can't be read, or is no file of tokens.
    pub(crate) fn new(
        file: TokenSettings,
        used: Option<File>,
        requests_per_s: u32,
        say: Say,
    ) -> Result<Askers, ReadError> {
        let mut file = TokensNow { file, say, is_bad: false, seen: None, tokens: None, looked: None };
        file.read()?;
        Ok(Askers {
            file: Mutex::new(file),
            requests_per_s: f64::from(requests_per_s),
            asked: Mutex::default(),
            used,
        })
    }

    /// How many tokens there are.
    pub(crate) fn count(&self) -> usize {
        locked(&self.file).tokens.as_ref().map_or(0, |tokens| tokens.all().len())
    }

    /// Whose token a request has, or whose certificate its connection. The file is looked at anew each time: so a change is
    /// in force with the next request. It may wait for a disk.
    ///
    /// # Errors
    /// There is neither a good token nor somebody's certificate, or both; or the file can't be read, and then nobody may ask.
    pub(crate) fn who(
        &self,
        headers: &HeaderMap,
        certificate: Option<&Certificate>,
    ) -> Result<Token, Problem> {
        let said = match certificate {
            Some(_) if !headers.contains_key(AUTHORIZATION) => None,
            _ => Some(said(headers)?),
        };
        let now_ns = now_ns();
        let mut file = locked(&self.file);
        file.look().map_err(|error| {
            let cause = format!("the tokens can't be read: {error}");
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, "tokens", cause, remedy(&error, "FILE"))
        })?;
        let tokens = file.tokens.as_ref();
        let by_token = said.and_then(|said| tokens?.find(said, now_ns)).cloned();
        let certified = certificate.and_then(|certificate| tokens?.of_certificate(&certificate.fingerprint));
        let certified = certified.cloned();
        drop(file);
        let token = match (said, by_token, certified) {
            (Some(_), Some(token), None) => token,
            (Some(_), Some(token), Some(other)) => {
                let cause = format!(
                    "it is the token of {}, and the certificate that of {}: one of them has to say who asks",
                    token.name, other.name
                );
                let remedy = "omit the Authorization, or show no certificate";
                return Err(Problem::new(StatusCode::BAD_REQUEST, "authorization", cause, remedy));
            }
            (Some(_), None, _) => {
                let cause = "the token isn't known, has expired, or was revoked";
                return Err(unauthorized(cause, "make another one: wirescope token add"));
            }
            (None, _, Some(token)) if token.is_good(now_ns) => token,
            (None, _, certified) => return Err(nobody(certificate, certified)),
        };
        let mut asked = locked(&self.asked);
        asked.uses.insert(token.id.clone(), now_ns);
        asked.is_new = true;
        Ok(token)
    }

    /// Whether who asked may ask still. The file is looked at once within [`LOOK_EVERY`], whoever wants to know. It may wait
    /// for a disk.
    pub(crate) fn may_still(&self, token: &Token) -> bool {
        let mut file = locked(&self.file);
        if file.looked.is_none_or(|looked| looked.elapsed() >= LOOK_EVERY) && file.look().is_err() {
            return false; // nobody may ask
        }
        file.tokens.as_ref().is_some_and(|tokens| tokens.has(token, now_ns()))
    }

    /// Looks at the file, also where nobody asks, so that what is wrong with it is said soon. It may wait for a disk.
    pub(crate) fn look(&self) {
        let _ = locked(&self.file).look(); // it says so itself
    }

    /// Counts a request of this token; what comes back is held until its answer is over.
    ///
    /// # Errors
    /// It is one too many for now.
    pub(crate) fn count_request(&self, token: &Token, now: Instant) -> Result<OwnedSemaphorePermit, Problem> {
        let too_many = |place: &str, cause: String, seconds: u64| {
            let remedy = "ask less often, or with fewer requests at once";
            Problem::new(StatusCode::TOO_MANY_REQUESTS, place, cause, remedy).retry_after(seconds)
        };
        let burst = self.requests_per_s * BURST_S;
        let mut asked = locked(&self.asked);
        let bucket = asked.buckets.entry(token.id.clone()).or_insert_with(|| Bucket {
            left: burst,
            at: now,
            places: Arc::new(Semaphore::new(AT_ONCE_MAX)),
        });
        let since = now.saturating_duration_since(bucket.at).as_secs_f64();
        bucket.left = (bucket.left + since * self.requests_per_s).min(burst);
        bucket.at = now;
        if bucket.left >= 1.0 {
            bucket.left -= 1.0;
            return bucket.places.clone().try_acquire_owned().map_err(|_| {
                let cause = format!("{} asks more than {AT_ONCE_MAX} things at once", token.name);
                too_many("requests", cause, 1)
            });
        }
        let wait = Duration::from_secs_f64((1.0 - bucket.left) / self.requests_per_s);
        let cause = format!("{} asks more than {} times a second", token.name, self.requests_per_s);
        Err(too_many("rate", cause, wait.as_secs() + u64::from(wait.subsec_nanos() > 0)))
    }

    /// Notes the last uses, where there are new ones. It may wait for a disk.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn note_uses(&self) -> io::Result<()> {
        let known: Vec<String> = {
            let file = locked(&self.file);
            file.tokens.iter().flat_map(Tokens::all).map(|token| token.id.clone()).collect()
        };
        let is_known = |id: &str| known.iter().any(|other| other == id);
        let uses = {
            let mut asked = locked(&self.asked);
            asked.buckets.retain(|id, _| is_known(id));
            asked.uses.retain(|id, _| is_known(id));
            if !std::mem::take(&mut asked.is_new) {
                return Ok(());
            }
            asked.uses.clone()
        };
        self.used.as_ref().map_or(Ok(()), |used| last_use::add(used, &uses, is_known))
    }
}

impl TokensNow {
    /// Reads the file where it is another one than before, and says when it can't be read any more, or again.
    fn look(&mut self) -> Result<(), ReadError> {
        let looked = self.read();
        let path = self.file.path.display();
        match (&looked, self.is_bad) {
            (Err(error), false) => {
                let remedy = remedy(error, &shell_word(&self.file.path));
                let line = format!("the tokens can't be read, and nobody may ask: {path}: {error}; {remedy}");
                (self.say)(Line::Warning(&line));
            }
            (Ok(()), true) => (self.say)(Line::Info(&format!("the tokens can be read again: {path}"))),
            _ => {}
        }
        self.is_bad = looked.is_err();
        looked
    }

    /// A file that can't be read, or that others have a hand in, has no tokens.
    fn read(&mut self) -> Result<(), ReadError> {
        self.looked = Some(Instant::now());
        let opened = (self.file.open)().map_err(ReadError::from);
        let looked = opened.and_then(|mut file| {
            let facts = file.metadata()?;
            token_file::check_rights(&facts, &self.file.owners)?;
            let seen =
                (facts.dev(), facts.ino(), facts.mtime() << 30 | facts.mtime_nsec(), facts.size() as i64);
            if self.seen == Some(seen) && self.tokens.is_some() {
                return Ok(());
            }
            self.tokens = Some(token_file::read(&mut file)?);
            self.seen = Some(seen);
            Ok(())
        });
        if looked.is_err() {
            (self.seen, self.tokens) = (None, None);
        }
        looked
    }
}

/// What helps where the file that is called so can't be read.
pub(crate) fn remedy(error: &ReadError, file: &str) -> String {
    match error {
        ReadError::Rights(bad) => bad.remedy(file),
        ReadError::System(_) | ReadError::Tokens(_) => {
            format!("put it back, or make one: wirescope token add --role viewer --name NAME --tokens {file}")
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn unauthorized(cause: &str, remedy: &str) -> Problem {
    Problem::new(StatusCode::UNAUTHORIZED, "authorization", cause, remedy)
}

/// The refusal of a certificate that names nobody, or somebody whose time is over.
fn nobody(certificate: Option<&Certificate>, certified: Option<Token>) -> Problem {
    let digits = certificate.map(Certificate::digits).unwrap_or_default();
    let (cause, remedy) = match certified {
        Some(token) => (
            format!("the certificate of {} has expired here", token.name),
            "revoke it, and add it anew: wirescope token add --certificate FILE",
        ),
        None => (
            format!("the certificate with SHA-256 {digits} is nobody's here, or was revoked"),
            "say whose it is: wirescope token add --certificate FILE; or send a token",
        ),
    };
    Problem::new(StatusCode::UNAUTHORIZED, "certificate", cause, remedy)
}

/// The token that a head says: in its one place, and nowhere else.
fn said(headers: &HeaderMap) -> Result<&str, Problem> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let remedy = "send Authorization: Bearer TOKEN";
    let value = match (values.next(), values.next()) {
        (None, _) => return Err(unauthorized("there is no token", remedy)),
        (Some(_), Some(_)) => return Err(unauthorized("there are two of them", remedy)),
        (Some(value), None) => value.to_str().unwrap_or_default(),
    };
    match value.split_at_checked(SCHEME.len()) {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case(SCHEME) => Ok(token.trim()),
        _ => Err(unauthorized("it is no bearer token", remedy)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::tests::Ca;
    use crate::token_file::TokenFile;
    use crate::tokens::NewToken;
    use http::HeaderValue;
    use scope_api::Role;
    use std::os::unix::fs::PermissionsExt;

    fn with(value: &str) -> HeaderMap {
        HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_str(value).unwrap())])
    }

    fn setup() -> (tempfile::TempDir, TokenFile, String, Askers) {
        let (folder, file, token, askers, _) = setup_heard();
        (folder, file, token, askers)
    }

    /// How the file is spoiled and made good again, and what is said of it.
    type Spoil<'a> = (&'a dyn Fn(), &'a dyn Fn(), &'static str);
    /// With what it says.
    type Heard = Arc<Mutex<Vec<String>>>;

    fn setup_heard() -> (tempfile::TempDir, TokenFile, String, Askers, Heard) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        let file = TokenFile::at(&path).unwrap();
        let new = NewToken {
            name: "noc".to_string(),
            role: Role::Viewer,
            expires_ns: None,
            filter: None,
            instance: None,
        };
        let token = file.change(|tokens| tokens.add(new, 1)).unwrap();
        let owners = vec![path.metadata().unwrap().uid()];
        let opened = path.clone();
        let tokens = TokenSettings { open: Box::new(move || File::open(&opened)), path, owners };
        let heard = Heard::default();
        let hearing = heard.clone();
        let say: Say = Arc::new(move |line| locked(&hearing).push(format!("{line:?}")));
        let askers = Askers::new(tokens, None, 10, say).unwrap();
        (folder, file, token, askers, heard)
    }

    #[test]
    fn a_file_that_is_gone_open_to_others_or_damaged_refuses_all_and_is_said_once_until_it_is_good_again() {
        let (folder, _file, token, askers, heard) = setup_heard();
        let (path, aside) = (folder.path().join("tokens"), folder.path().join("aside"));
        let bearer = with(&format!("Bearer {token}"));
        let good = std::fs::read(&path).unwrap();
        let who = || askers.who(&bearer, None).map(|token| token.name);
        let mode = |mode| std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        let noc = who().unwrap();
        // The mode changes nothing of what a new look is saved by.
        let spoils: [Spoil<'_>; 3] = [
            (&|| mode(0o666), &|| mode(0o600), "chmod 600"),
            (
                &|| std::fs::rename(&path, &aside).unwrap(),
                &|| std::fs::rename(&aside, &path).unwrap(),
                "No such file",
            ),
            (
                &|| std::fs::write(&path, "{}").unwrap(),
                &|| std::fs::write(&path, &good).unwrap(),
                "it is no file of tokens",
            ),
        ];
        for (spoil, mend, told) in spoils {
            spoil();
            for _ in 0..3 {
                let refused = who().unwrap_err();
                assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
                assert!(!refused.faults[0].remedy.is_empty(), "{refused}");
                assert!(!refused.to_string().contains(&*path.to_string_lossy()), "{refused}");
                askers.look();
            }
            let said = std::mem::take(&mut *locked(&heard));
            assert!(said.len() == 1 && said[0].contains("Warning") && said[0].contains(told), "{said:?}");
            assert!(said[0].contains(&*path.to_string_lossy()), "{said:?}");
            mend();
            assert_eq!((who().unwrap(), who().unwrap()), (noc.clone(), noc.clone()));
            let said = std::mem::take(&mut *locked(&heard));
            assert!(said.len() == 1 && said[0].contains("Info"), "{said:?}");
        }
    }

    #[test]
    fn a_token_is_good_until_the_file_says_otherwise() {
        let (folder, file, token, askers) = setup();
        let bearer = format!("Bearer {token}");
        assert_eq!(askers.who(&with(&bearer), None).unwrap().name, "noc");
        assert_eq!(askers.who(&with(&format!("bearer  {token}")), None).unwrap().name, "noc");
        let mut two = with(&bearer);
        two.append(AUTHORIZATION, HeaderValue::from_str(&bearer).unwrap());
        let other = format!("{bearer}0");
        let odd = [with(&other), with(&token), with("Basic YTpi"), with("Bearer"), with("Bearer "), two];
        for headers in odd.iter().chain([&HeaderMap::new()]) {
            assert_eq!(
                askers.who(headers, None).unwrap_err().status,
                StatusCode::UNAUTHORIZED,
                "{headers:?}"
            );
        }
        file.change(|tokens| tokens.revoke("noc")).unwrap();
        assert_eq!(askers.who(&with(&bearer), None).unwrap_err().status, StatusCode::UNAUTHORIZED);
        std::fs::write(folder.path().join("tokens"), "{}").unwrap();
        assert_eq!(askers.who(&with(&bearer), None).unwrap_err().status, StatusCode::SERVICE_UNAVAILABLE);
    }

    #[test]
    fn a_certificate_names_who_asks_where_no_token_does() {
        let (_folder, file, token, askers) = setup();
        let ca = Ca::new("one");
        let [mine, late, nobodys] =
            [1, 2, 3].map(|at| Certificate::of(Some(&[ca.sign(at, 2100).der().clone()])).unwrap());
        let new = |name: &str, expires_ns| NewToken {
            name: name.to_string(),
            role: Role::Analyst,
            expires_ns,
            filter: None,
            instance: None,
        };
        file.change(|tokens| tokens.add_certificate(new("shop", None), mine.fingerprint, 1)).unwrap();
        file.change(|tokens| tokens.add_certificate(new("old", Some(2)), late.fingerprint, 1)).unwrap();
        let (none, bearer) = (HeaderMap::new(), with(&format!("Bearer {token}")));
        let who = |headers: &HeaderMap, certificate: &Certificate| {
            let who = askers.who(headers, Some(certificate));
            who.map(|token| token.name).map_err(|problem| problem.status.as_u16())
        };
        assert_eq!(who(&none, &mine).as_deref(), Ok("shop"));
        assert_eq!((who(&none, &late), who(&none, &nobodys)), (Err(401), Err(401)));
        // A certificate that names nobody leaves it to the token; with one that does a token is one too many.
        assert_eq!(who(&bearer, &nobodys).as_deref(), Ok("noc"));
        assert_eq!((who(&bearer, &mine), who(&bearer, &late)), (Err(400), Err(400)));
        assert_eq!(who(&with("Bearer x"), &mine), Err(401));
        let shop = askers.who(&none, Some(&mine)).unwrap();
        assert!(askers.may_still(&shop));
        file.change(|tokens| tokens.revoke("shop")).unwrap();
        assert_eq!(who(&none, &mine), Err(401));
        assert!(!askers.may_still(&shop));
    }

    #[test]
    fn who_asks_too_often_waits() {
        let (_folder, _file, token, askers) = setup();
        let token = askers.who(&with(&format!("Bearer {token}")), None).unwrap();
        let begin = Instant::now();
        let after = |ms: u64| askers.count_request(&token, begin + Duration::from_millis(ms));
        for _ in 0..20 {
            drop(after(0).unwrap());
        }
        let refused = after(0).unwrap_err();
        assert_eq!((refused.status, refused.retry_after_s), (StatusCode::TOO_MANY_REQUESTS, Some(1)));
        drop(after(101).unwrap());
        after(102).unwrap_err();
        assert_eq!((0..30).filter(|_| after(60_000).is_ok()).count(), 20);
        let held: Vec<_> = (0..AT_ONCE_MAX).map(|_| after(120_000).unwrap()).collect();
        assert_eq!(after(120_000).unwrap_err().status, StatusCode::TOO_MANY_REQUESTS);
        drop(held);
        drop(after(120_000).unwrap());
    }
}
