//! The example runs, and the README shows exactly that example.

#[path = "../examples/one_writer_one_reader.rs"]
mod one_writer_one_reader;

#[test]
fn the_example_runs() {
    one_writer_one_reader::main().expect("the example ends well");
}

#[test]
fn the_readme_shows_the_example_as_it_is() {
    let readme = include_str!("../README.md");
    assert!(
        readme.contains(&format!("```rust\n{}```\n", include_str!("../examples/one_writer_one_reader.rs")))
    );
}
