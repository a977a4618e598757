//! Which instructions write the ring: chosen once at start, or forced for tests and measurements.

/// The environment variable that forces a form: `avx512`, `avx2`, `sse2` or `plain`.
pub const FORM_VARIABLE: &str = "WIRESCOPE_RING_FORM";

/// How bytes go to memory. All forms write the same bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Whole lines put together in 64-byte registers and streamed.
    Avx512,
    /// Half lines put together in 32-byte registers and streamed.
    Avx2,
    /// Whole lines staged and streamed 16 bytes at a time.
    Sse2,
    /// Ordinary stores.
    Plain,
}

impl Form {
    /// All forms, fastest first.
    pub const ALL: [Form; 4] = [Form::Avx512, Form::Avx2, Form::Sse2, Form::Plain];

    /// Its name, as the environment variable takes it.
    pub const fn name(self) -> &'static str {
        match self {
            Form::Avx512 => "avx512",
            Form::Avx2 => "avx2",
            Form::Sse2 => "sse2",
            Form::Plain => "plain",
        }
    }

    /// Whether this processor has the form.
    pub fn is_supported(self) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            Form::Avx512 => {
                std::is_x86_feature_detected!("avx512f")
                    && std::is_x86_feature_detected!("avx512bw")
                    && std::is_x86_feature_detected!("bmi2")
            }
            #[cfg(target_arch = "x86_64")]
            Form::Avx2 => std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("bmi2"),
            #[cfg(target_arch = "x86_64")]
            Form::Sse2 => true,
            Form::Plain => true,
            #[cfg(not(target_arch = "x86_64"))]
            _ => false,
        }
    }

    /// The fastest form of this processor, or the one that [`FORM_VARIABLE`] asks for; an unknown or missing
    /// one is an error that says so.
    pub fn choose() -> std::io::Result<Form> {
        match std::env::var_os(FORM_VARIABLE) {
            None => Ok(Form::ALL.into_iter().find(|form| form.is_supported()).unwrap_or(Form::Plain)),
            Some(asked) => match Form::ALL.into_iter().find(|form| asked == form.name()) {
                Some(form) => form.supported(),
                None => Err(std::io::Error::new(
                    std::io::ErrorKind::InvalidInput,
                    format!("{FORM_VARIABLE} is {asked:?}: it must be avx512, avx2, sse2 or plain"),
                )),
            },
        }
    }

    /// The form itself, or an error where this processor doesn't have it.
    pub fn supported(self) -> std::io::Result<Form> {
        if self.is_supported() {
            return Ok(self);
        }
        let said = format!("this processor can't write in form {}; choose plain, or none", self.name());
        Err(std::io::Error::new(std::io::ErrorKind::Unsupported, said))
    }
}
