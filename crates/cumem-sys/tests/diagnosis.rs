//! The whole story of finding a driver, as data and as text.

#![cfg(target_os = "linux")]

mod support;

use std::path::Path;

use cumem_sys::{Diagnose, LoadError, SYMBOLS, Source};
use support::{Fixture, driver};

#[test]
fn a_diagnosis_says_where_every_symbol_came_from() {
    let library = driver("every_symbol", &["-DLOOK_UP"]);
    let diagnosis = Diagnose::new().path(&library).run();
    assert!(diagnosis.is_initialised());
    assert_eq!(diagnosis.library().map(Path::new), Some(library.as_path()));
    assert_eq!(diagnosis.driver_version(), Some(13000));
    assert!(!diagnosis.met_stub() && diagnosis.error().is_none());
    assert_eq!(diagnosis.symbols().len(), SYMBOLS.len());
    for report in diagnosis.symbols() {
        let name = report.symbol().name();
        match report.source() {
            Some(_) => {
                assert_ne!(report.address(), 0);
                assert_eq!(
                    report.file().map(Path::new),
                    Some(library.as_path()),
                    "{name}"
                );
            }
            None => assert!(!report.symbol().is_required() && report.file().is_none()),
        }
        let expected = match name {
            "cuMemAdvise_v2" => (Some(Source::ProcAddress), Some("same")),
            // Asked for at 8.0, this driver's look-up has only the later form.
            "cuMemAdvise" => (Some(Source::Export), Some("later")),
            "cuMemFree_v2" => (Some(Source::Export), Some("another")),
            "cuMemAlloc_v2" => (Some(Source::Export), Some("unknown")),
            "cuMemAllocAsync" => (None, Some("unknown")),
            _ => continue,
        };
        assert_eq!((report.source(), report.driver_says()), expected, "{name}");
    }
    let text = diagnosis.to_string();
    for line in [
        &format!("found      {}", library.display()),
        "version    CUDA 13.0",
        "cuInit     succeeded",
    ] {
        assert!(text.contains(line), "no {line:?} in:\n{text}");
    }
    assert!(
        text.lines()
            .any(|line| line.starts_with("cuMemAllocAsync ") && line.contains("absent"))
    );
}

#[test]
fn a_diagnosis_tells_what_is_newer_than_the_driver() {
    let library = driver("newer", &["-DLOOK_UP", "-DVERSION=11080"]);
    let diagnosis = Diagnose::new().path(&library).run();
    let report = diagnosis
        .symbols()
        .iter()
        .find(|report| report.symbol().name() == "cuMemAdvise_v2")
        .expect("a bound symbol");
    assert_eq!(
        (report.source(), report.driver_says()),
        (None, Some("too new"))
    );
}

#[test]
fn a_diagnosis_can_do_without_cuinit() {
    let library = driver("without_init", &["-DINIT=100"]);
    let diagnosis = Diagnose::new().path(&library).without_init().run();
    assert!(diagnosis.error().is_none() && !diagnosis.is_initialised());
    assert_eq!(Fixture::open(&library).get("fixture_inits"), 0);
    assert!(diagnosis.to_string().contains("cuInit     not called"));
    let diagnosis = Diagnose::new().path(&library).run();
    assert!(matches!(
        diagnosis.error(),
        Some(LoadError::NoDevice { .. })
    ));
    // What was found is told all the same.
    assert_eq!(diagnosis.symbols().len(), SYMBOLS.len());
    assert!(diagnosis.to_string().contains("unusable"));
}

#[test]
fn a_diagnosis_tells_what_is_missing_of_an_unusable_library() {
    let library = driver("unusable", &["-DWITHOUT_FREE"]);
    let diagnosis = Diagnose::new().path(&library).run();
    assert!(matches!(
        diagnosis.error(),
        Some(LoadError::MissingSymbol { .. })
    ));
    let text = diagnosis.to_string();
    assert!(
        text.lines()
            .any(|line| line.starts_with("cuMemFree_v2 ") && line.contains("MISSING"))
    );
}

#[test]
fn a_stub_is_known_without_cuinit() {
    let library = driver("stub", &["-DSTUB"]);
    let diagnosis = Diagnose::new().path(&library).without_init().run();
    assert!(diagnosis.met_stub() && diagnosis.library().is_none());
    assert!(matches!(diagnosis.error(), Some(LoadError::Stub { .. })));
}
