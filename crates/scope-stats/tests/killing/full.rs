//! A disk that is full keeps rows with the caller.

use crate::made::{LENGTH, T0, expect_sound, flow, one, open, reader, settled};
use scope_flow::rows::Settled;
use scope_stats::Failed;
use scope_testkit::lab::disk::{Disk, Kind, own_mounts};

#[test]
fn a_full_disk_costs_no_row_that_fits_later() {
    // A thread of its own: what it mounts is its own.
    let task = || {
        if let Err(error) = own_mounts() {
            println!("skipped: only root mounts a small disk ({error})");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let _disk = Disk::mount(Kind::Small(4096), folder.path()).unwrap();
        let (path, filler) = (folder.path().join("x.sqlite"), folder.path().join("taken"));
        std::fs::write(&filler, vec![1; 3 << 20]).unwrap();
        let packets = || one::<i64>(&reader(&path), "SELECT coalesce(sum(packets), 0) FROM intervals");
        let mut writer = open(&path);
        let mut written = 0;
        let (failed, mut given) = loop {
            let mut given = Settled { flows: vec![flow(T0, 1); 50], ..settled(T0 + written * LENGTH, 1) };
            match writer.write(&mut given, T0) {
                Ok(()) => written += 1,
                Err(failed) => break (failed, given),
            }
        };
        for failed in [failed, writer.write(&mut given, T0).unwrap_err()] {
            assert!(matches!(failed, Failed::DiskFull { .. }), "{failed}");
        }
        assert!(written > 2, "{written}");
        assert_eq!((given.rows(), packets()), (53, written));
        std::fs::remove_file(&filler).unwrap();
        writer.write(&mut given, T0).unwrap();
        assert!(given.is_empty());
        writer.close(T0).unwrap();
        expect_sound(&path);
        assert_eq!(packets(), written + 1);
        assert_eq!(one::<i64>(&reader(&path), "SELECT count(*) FROM flows"), 50 * (written + 1));
    };
    std::thread::spawn(task).join().unwrap();
}
