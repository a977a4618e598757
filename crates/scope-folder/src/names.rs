//! Names with a suffix, before the extension.

use std::path::{Path, PathBuf};

/// `x.pcapng` and `RAW` give `x_RAW.pcapng`.
pub fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let name = match path.extension() {
        Some(extension) => format!("{stem}_{suffix}.{}", extension.to_string_lossy()),
        None => format!("{stem}_{suffix}"),
    };
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_suffix_goes_in_front_of_the_extension() {
        let check =
            |path: &str, expected: &str| assert_eq!(with_suffix(Path::new(path), "RAW"), Path::new(expected));
        check("a/x.pcapng", "a/x_RAW.pcapng");
        check("x", "x_RAW");
        check("/tmp/x.y.pcap", "/tmp/x.y_RAW.pcap");
    }
}
