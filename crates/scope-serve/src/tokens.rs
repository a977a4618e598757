//! Tokens: who may ask through the door to the network. What is kept of a token is its keyed hash, see decision 0028; of
//! whoever has a client certificate in its place, that one's fingerprint, see decision 0029.
//!
//! ```text
//! wirescope_3f9a...  (shown once: 256 random bits)  ─► BLAKE3, keyed by the file's own key ─► hash
//! {"wirescope_tokens": 1, "key": "..", "tokens": [
//!  {"id": "5d0c..", "name": "noc", "role": "viewer", "hash": "..", "created_ns": 1795206665000000000,
//!   "expires_ns": null, "filter": null, "instance": null},
//!  {"id": "90be..", "name": "grafana", "role": "viewer", "certificate": "..", ...}]}      SHA-256 of the certificate (DER)
//! ```

use ring::rand::{SecureRandom, SystemRandom};
use scope_api::identity::{FILTER_BYTES_MAX, is_name};
use scope_api::{Identity, Role};
use serde_json::{Value, json};
use std::fmt::Write;

/// Tokens of a file at most.
pub const TOKENS_MAX: usize = 1000;
/// Its bytes at most.
pub const FILE_BYTES_MAX: u64 = 8 << 20;
/// What every token begins with, so that programs which look for secrets in the wrong places find it.
const TOKEN_PREFIX: &str = "wirescope_";
/// Random bytes of a token, and of the key.
const SECRET_BYTES: usize = 32;
/// Of an id.
const ID_BYTES: usize = 8;
/// The version of the file's form, and its key.
const VERSION: u64 = 1;
const VERSION_KEY: &str = "wirescope_tokens";

/// Bytes of a certificate's fingerprint.
pub const FINGERPRINT_BYTES: usize = 32;

/// The SHA-256 of a certificate (DER).
pub type Fingerprint = [u8; FINGERPRINT_BYTES];

/// By what a request says whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Proof {
    /// By a token with this keyed hash.
    Token([u8; blake3::OUT_LEN]),
    /// By the client certificate of its connection.
    Certificate(Fingerprint),
}

/// What is kept of one token, or of one client certificate in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// Its own, never used again: a new token of the same name has another one.
    pub id: String,
    /// Of whoever has it.
    pub name: String,
    /// What may be asked with it.
    pub role: Role,
    /// When it was made, ns since the epoch.
    pub created_ns: i64,
    /// From when on it is no good; `None`: it stays good.
    pub expires_ns: Option<i64>,
    /// Only packets that match this are shown; `None`: all.
    pub filter: Option<String>,
    /// The instance that may be asked; `None`: all.
    pub instance: Option<String>,
    proof: Proof,
}

/// A token that is to be made.
#[derive(Clone, Debug)]
pub struct NewToken {
    /// Of whoever will have it.
    pub name: String,
    /// What may be asked with it.
    pub role: Role,
    /// From when on it is no good.
    pub expires_ns: Option<i64>,
    /// Only packets that match this are shown.
    pub filter: Option<String>,
    /// The instance that may be asked.
    pub instance: Option<String>,
}

/// Why a change or a reading of tokens fails, in words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokensError {
    /// Another one has this name.
    #[error("there is a token '{0}' already")]
    Exists(String),
    /// None has this name.
    #[error("there is no token '{0}'")]
    None(String),
    /// Another one has this certificate.
    #[error("that certificate is the one of '{0}' already")]
    Certified(String),
    /// There are as many as there may be.
    #[error("there are {TOKENS_MAX} tokens already")]
    Full,
    /// The file isn't one of tokens.
    #[error("it is no file of tokens: {0}")]
    Form(String),
    /// The system gives no random bytes.
    #[error("the system gives no random bytes")]
    Random,
}

/// All tokens of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tokens {
    key: [u8; blake3::KEY_LEN],
    all: Vec<Token>,
}

impl Tokens {
    /// None yet, with a key of their own.
    ///
    /// # Errors
    /// The system gives no random bytes.
    pub fn new() -> Result<Tokens, TokensError> {
        Ok(Tokens { key: random()?, all: Vec::new() })
    }

    /// What a file says.
    ///
    /// # Errors
    /// It is none of tokens, or a part of it can't be meant: then none of them is good.
    pub fn read(bytes: &[u8]) -> Result<Tokens, TokensError> {
        let bad = |cause: &str| TokensError::Form(cause.to_string());
        let file: Value =
            serde_json::from_slice(bytes).map_err(|error| TokensError::Form(error.to_string()))?;
        if file[VERSION_KEY] != VERSION {
            return Err(bad("it is of another version"));
        }
        let key = file["key"].as_str().and_then(unhex).ok_or_else(|| bad("its key is none"))?;
        let list = file["tokens"].as_array().ok_or_else(|| bad("it has no list of tokens"))?;
        if list.len() > TOKENS_MAX {
            return Err(TokensError::Full);
        }
        let mut tokens = Tokens { key, all: Vec::with_capacity(list.len()) };
        for (at, value) in list.iter().enumerate() {
            let token = token(value).map_err(|what| bad(&format!("token {at}: {what}")))?;
            if tokens.get(&token.name).is_some() {
                return Err(bad(&format!("two are called '{}'", token.name)));
            }
            if let Proof::Certificate(fingerprint) = &token.proof
                && let Some(other) = tokens.of_certificate(fingerprint)
            {
                return Err(bad(&format!("'{}' and '{}' have one certificate", other.name, token.name)));
            }
            tokens.all.push(token);
        }
        Ok(tokens)
    }

    /// As a file has it.
    pub fn write(&self) -> Vec<u8> {
        let token = |token: &Token| {
            let (key, digits) = match &token.proof {
                Proof::Token(hash) => ("hash", hex(hash)),
                Proof::Certificate(fingerprint) => ("certificate", hex(fingerprint)),
            };
            json!({
                "id": token.id, "name": token.name, "role": token.role.word(), key: digits,
                "created_ns": token.created_ns, "expires_ns": token.expires_ns, "filter": token.filter,
                "instance": token.instance,
            })
        };
        let tokens: Vec<Value> = self.all.iter().map(token).collect();
        let file = json!({VERSION_KEY: VERSION, "key": hex(&self.key), "tokens": tokens});
        format!("{file:#}\n").into_bytes()
    }

    /// All of them.
    pub fn all(&self) -> &[Token] {
        &self.all
    }

    fn get(&self, name: &str) -> Option<&Token> {
        self.all.iter().find(|token| token.name == name)
    }

    /// Makes one; the token itself, which nobody can say a second time.
    ///
    /// # Errors
    /// The name is taken, or there is no room.
    pub fn add(&mut self, new: NewToken, now_ns: i64) -> Result<String, TokensError> {
        let said = format!("{TOKEN_PREFIX}{}", hex(&random::<SECRET_BYTES>()?));
        self.put(new, Proof::Token(self.hash(&said)), now_ns)?;
        Ok(said)
    }

    /// Names whoever has this client certificate.
    ///
    /// # Errors
    /// The name is taken, the certificate is somebody's, or there is no room.
    pub fn add_certificate(
        &mut self,
        new: NewToken,
        fingerprint: Fingerprint,
        now_ns: i64,
    ) -> Result<(), TokensError> {
        if let Some(token) = self.of_certificate(&fingerprint) {
            return Err(TokensError::Certified(token.name.clone()));
        }
        self.put(new, Proof::Certificate(fingerprint), now_ns)
    }

    fn put(&mut self, new: NewToken, proof: Proof, now_ns: i64) -> Result<(), TokensError> {
        if self.get(&new.name).is_some() {
            return Err(TokensError::Exists(new.name));
        }
        if self.all.len() >= TOKENS_MAX {
            return Err(TokensError::Full);
        }
        let NewToken { name, role, expires_ns, filter, instance } = new;
        self.all.push(Token {
            id: hex(&random::<ID_BYTES>()?),
            name,
            role,
            created_ns: now_ns,
            expires_ns,
            filter,
            instance,
            proof,
        });
        Ok(())
    }

    /// Removes one.
    ///
    /// # Errors
    /// There is none of this name.
    pub fn revoke(&mut self, name: &str) -> Result<(), TokensError> {
        let before = self.all.len();
        self.all.retain(|token| token.name != name);
        if self.all.len() == before { Err(TokensError::None(name.to_string())) } else { Ok(()) }
    }

    /// The token that somebody says; `None`: there is no such one, or it is no good any more. All hashes are compared, and
    /// each in the same time whatever is in it.
    pub fn find(&self, said: &str, now_ns: i64) -> Option<&Token> {
        let hash = blake3::Hash::from_bytes(self.hash(said));
        let mut found = None;
        for token in &self.all {
            if let Proof::Token(kept) = token.proof
                && hash == blake3::Hash::from_bytes(kept)
            {
                found = Some(token);
            }
        }
        found.filter(|token| token.is_good(now_ns))
    }

    /// Whose client certificate that is, also where it is no good any more. A fingerprint is no secret.
    pub fn of_certificate(&self, fingerprint: &Fingerprint) -> Option<&Token> {
        self.all.iter().find(|token| token.proof == Proof::Certificate(*fingerprint))
    }

    /// Whether this one stands there still, unchanged, and is good.
    pub fn has(&self, token: &Token, now_ns: i64) -> bool {
        token.is_good(now_ns) && self.all.contains(token)
    }

    fn hash(&self, said: &str) -> [u8; blake3::OUT_LEN] {
        blake3::keyed_hash(&self.key, said.as_bytes()).into()
    }
}

impl Token {
    /// As it is passed on to a run.
    pub fn identity(&self) -> Identity {
        Identity { name: self.name.clone(), role: self.role, filter: self.filter.clone() }
    }

    /// Whether it hasn't expired.
    pub fn is_good(&self, now_ns: i64) -> bool {
        self.expires_ns.is_none_or(|expires_ns| now_ns < expires_ns)
    }

    /// The SHA-256 of the client certificate that stands in the place of a token, as digits.
    pub fn certificate(&self) -> Option<String> {
        match &self.proof {
            Proof::Token(_) => None,
            Proof::Certificate(fingerprint) => Some(hex(fingerprint)),
        }
    }
}

fn token(value: &Value) -> Result<Token, &'static str> {
    let text = |key: &str| value[key].as_str().map(str::to_string);
    let known =
        ["id", "name", "role", "hash", "certificate", "created_ns", "expires_ns", "filter", "instance"]
            .map(str::to_string);
    if value.as_object().is_none_or(|object| object.keys().any(|key| !known.contains(key))) {
        return Err("it has a key that isn't known here");
    }
    // What bounds it must not be taken for nothing.
    let optional = |key: &str| match &value[key] {
        Value::Null => Ok(None),
        Value::String(text) if !text.trim().is_empty() => Ok(Some(text.clone())),
        _ => Err("its filter or instance is no text"),
    };
    let expires_ns = match &value["expires_ns"] {
        Value::Null => None,
        ns => Some(ns.as_i64().ok_or("its end is no time")?),
    };
    let proof = match (&value["hash"], &value["certificate"]) {
        (Value::String(digits), Value::Null) => unhex(digits).map(Proof::Token).ok_or("it has no hash")?,
        (Value::Null, Value::String(digits)) => {
            unhex(digits).map(Proof::Certificate).ok_or("its certificate is none")?
        }
        (Value::Null, _) => return Err("it has no hash"),
        _ => return Err("it has a hash and a certificate"),
    };
    let token = Token {
        id: text("id").filter(|id| is_name(id)).ok_or("it has no id")?,
        name: text("name").filter(|name| is_name(name)).ok_or("it has no name")?,
        role: value["role"].as_str().and_then(Role::of).ok_or("it has no role")?,
        created_ns: value["created_ns"].as_i64().ok_or("it has no begin")?,
        expires_ns,
        filter: optional("filter")?,
        instance: optional("instance")?,
        proof,
    };
    if token.filter.as_ref().is_some_and(|filter| filter.len() > FILTER_BYTES_MAX) {
        return Err("its filter is too long");
    }
    if token.filter.is_some() && token.role > Role::Analyst {
        return Err("with a filter it is an analyst's at most");
    }
    Ok(token)
}

fn random<const BYTES: usize>() -> Result<[u8; BYTES], TokensError> {
    let mut bytes = [0; BYTES];
    SystemRandom::new().fill(&mut bytes).map_err(|_| TokensError::Random)?;
    Ok(bytes)
}

/// Bytes as digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn unhex<const BYTES: usize>(text: &str) -> Option<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    if text.len() != 2 * BYTES || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    for (byte, two) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(two).ok()?, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(name: &str) -> NewToken {
        NewToken {
            name: name.to_string(),
            role: Role::Analyst,
            expires_ns: None,
            filter: None,
            instance: None,
        }
    }

    #[test]
    fn a_token_is_found_until_it_expires_or_is_revoked_and_only_its_hash_is_kept() {
        let mut tokens = Tokens::new().unwrap();
        let one = tokens.add(new("one"), 5).unwrap();
        let filter = Some("udp port 53".to_string());
        let two = tokens.add(NewToken { expires_ns: Some(100), filter, ..new("two") }, 6).unwrap();
        assert_eq!(one.len(), "wirescope_".len() + 64);
        assert_ne!(one, two);
        let file = tokens.write();
        let text = String::from_utf8(file.clone()).unwrap();
        assert!(!text.contains(&one) && !text.contains(one.strip_prefix("wirescope_").unwrap()), "{text}");
        let mut tokens = Tokens::read(&file).unwrap();
        let name = |tokens: &Tokens, said: &str, now| tokens.find(said, now).map(|token| token.name.clone());
        assert_eq!(name(&tokens, &one, 1000).as_deref(), Some("one"));
        assert_eq!(name(&tokens, &two, 99).as_deref(), Some("two"));
        assert_eq!(
            (name(&tokens, &two, 100), name(&tokens, "", 0), name(&tokens, "one", 0)),
            (None, None, None)
        );
        assert_eq!(tokens.find(&two, 0).unwrap().identity().filter.as_deref(), Some("udp port 53"));
        assert_eq!(tokens.add(new("one"), 7), Err(TokensError::Exists("one".to_string())));
        tokens.revoke("one").unwrap();
        assert_eq!(tokens.revoke("one"), Err(TokensError::None("one".to_string())));
        assert_eq!(name(&tokens, &one, 50), None);
        // A new one of the same name has another id.
        let (again, id) =
            (tokens.add(new("one"), 8).unwrap(), Tokens::read(&file).unwrap().all()[0].id.clone());
        assert_ne!(tokens.find(&again, 9).unwrap().id, id);
        // A token of one file is none of another.
        assert_eq!(name(&Tokens::new().unwrap(), &again, 9), None);
    }

    #[test]
    fn a_certificate_is_one_persons_and_no_token() {
        let mut tokens = Tokens::new().unwrap();
        let said = tokens.add(new("one"), 5).unwrap();
        let [mine, other] = [[7; FINGERPRINT_BYTES], [8; FINGERPRINT_BYTES]];
        tokens.add_certificate(NewToken { expires_ns: Some(100), ..new("two") }, mine, 6).unwrap();
        let refused =
            |name: &str, fingerprint| tokens.clone().add_certificate(new(name), fingerprint, 7).unwrap_err();
        assert_eq!(refused("three", mine), TokensError::Certified("two".to_string()));
        assert_eq!(refused("one", other), TokensError::Exists("one".to_string()));
        let file = tokens.write();
        let mut read = Tokens::read(&file).unwrap();
        assert_eq!(read, tokens);
        let token = read.of_certificate(&mine).unwrap().clone();
        assert_eq!((token.name.as_str(), token.certificate()), ("two", Some("07".repeat(32))));
        assert!(read.of_certificate(&other).is_none());
        assert!(read.find(&"07".repeat(32), 0).is_none() && read.find(&said, 0).is_some());
        assert!(read.has(&token, 99) && !read.has(&token, 100));
        read.revoke("two").unwrap();
        assert!(!read.has(&token, 99) && read.of_certificate(&mine).is_none());
        // The same again is another one.
        read.add_certificate(new("two"), mine, 8).unwrap();
        assert!(!read.has(&token, 99) && read.has(&read.all()[1].clone(), i64::MAX));
        let good: Value = serde_json::from_slice(&file).unwrap();
        for (key, value, told) in [
            ("hash", good["tokens"][0]["hash"].clone(), "it has a hash and a certificate"),
            ("certificate", json!("07"), "its certificate is none"),
            ("certificate", json!(7), "it has no hash"),
        ] {
            let mut file = good.clone();
            file["tokens"][1][key] = value;
            let error = Tokens::read(file.to_string().as_bytes()).unwrap_err().to_string();
            assert_eq!(error, format!("it is no file of tokens: token 1: {told}"), "{key}");
        }
        let mut twice = good.clone();
        twice["tokens"][0] = good["tokens"][1].clone();
        twice["tokens"][0]["name"] = json!("one");
        let error = Tokens::read(twice.to_string().as_bytes()).unwrap_err().to_string();
        assert!(error.contains("'one' and 'two' have one certificate"), "{error}");
    }

    #[test]
    fn a_file_of_another_form_has_no_tokens() {
        let mut tokens = Tokens::new().unwrap();
        tokens.add(new("one"), 5).unwrap();
        let good: Value = serde_json::from_slice(&tokens.write()).unwrap();
        let with = |key: &str, value: Value| {
            let mut file = good.clone();
            file["tokens"][0][key] = value;
            Tokens::read(file.to_string().as_bytes()).map(drop).unwrap_err().to_string()
        };
        for (key, value, told) in [
            ("role", json!("root"), "it has no role"),
            ("name", json!("a/b"), "it has no name"),
            ("filter", json!(7), "its filter or instance is no text"),
            ("filter", json!(""), "its filter or instance is no text"),
            ("expires_ns", json!("soon"), "its end is no time"),
            ("hash", json!("00"), "it has no hash"),
            ("allow", json!(true), "it has a key that isn't known here"),
        ] {
            assert_eq!(with(key, value), format!("it is no file of tokens: token 0: {told}"), "{key}");
        }
        let mut bound = good.clone();
        (bound["tokens"][0]["role"], bound["tokens"][0]["filter"]) = (json!("operator"), json!("udp"));
        assert!(Tokens::read(bound.to_string().as_bytes()).is_err());
        let mut twice = good.clone();
        twice["tokens"] = json!([good["tokens"][0], good["tokens"][0]]);
        assert!(Tokens::read(twice.to_string().as_bytes()).is_err());
        for text in ["", "{}", "[]", "{\"wirescope_tokens\": 2}", "{\"wirescope_tokens\": 1}"] {
            assert!(Tokens::read(text.as_bytes()).is_err(), "{text}");
        }
    }
}
