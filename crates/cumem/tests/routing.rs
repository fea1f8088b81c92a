//! Finding who holds a pointer, in a process whose driver is simulated.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use cumem::policy::ByteLimit;
use cumem::{
    Backend, Buffer, DEVICE, Device, LeakGuard, MemoryBackend, PINNED, ReleaseError, UNIFIED,
    buckets_for, leak_report, owner_of, register_backend,
};
use cumem_sim::Sim;

type Small<K> = Backend<K, { buckets_for(64) }>;
static MINE: Small<Device> = Small::with_capacity(64);
static LIMITED: ByteLimit<&'static Small<Device>> = ByteLimit::new(&MINE, 10_000);

/// The process-wide driver is simulated, and one test at a time looks at what is live.
fn world() -> (&'static Sim, MutexGuard<'static, ()>) {
    static WORLD: OnceLock<Sim> = OnceLock::new();
    static ALONE: Mutex<()> = Mutex::new(());
    let sim = WORLD.get_or_init(|| {
        let sim = Sim::new();
        sim.driver().unwrap().set_global().unwrap();
        sim
    });
    (sim, ALONE.lock().unwrap_or_else(PoisonError::into_inner))
}

fn release(ptr: NonNull<u8>) -> Result<(), ReleaseError> {
    // SAFETY: no test uses the memory of a block.
    unsafe { cumem::release(ptr) }
}

#[test]
fn every_default_backend_is_asked() {
    let (sim, _alone) = world();
    let blocks = [
        ("unified", UNIFIED.allocate(100, 1).unwrap().into_raw().0),
        (
            "device-preferred",
            DEVICE.allocate(200, 1).unwrap().into_raw().0,
        ),
        ("pinned", PINNED.allocate(300, 1).unwrap().into_raw().0),
    ];
    for (index, (kind, ptr)) in blocks.into_iter().enumerate() {
        let owner = owner_of(ptr).unwrap();
        assert_eq!((owner.kind, owner.size), (kind, (index + 1) * 100));
        assert_eq!(owner.device, 0);
        assert!(owner.site.file().ends_with("routing.rs"));
    }
    assert_eq!(leak_report().bytes(), 600);
    let misses: u64 = [UNIFIED.statistics(), PINNED.statistics()]
        .map(|held| held.not_owned)
        .iter()
        .sum();
    for (_, ptr) in blocks {
        release(ptr).unwrap();
        assert!(owner_of(ptr).is_none());
    }
    assert_eq!(
        UNIFIED.statistics().not_owned + PINNED.statistics().not_owned,
        misses
    );
    assert!(leak_report().is_empty());
    assert!(sim.books().are_clean());
}

#[test]
fn unknown_and_released_pointers_are_refused_without_the_driver() {
    let (sim, _alone) = world();
    let ptr = UNIFIED.allocate(100, 1).unwrap().into_raw().0;
    release(ptr).unwrap();
    let calls = sim.books().calls.values().sum::<u64>();
    let mut local = 0_u8;
    for stranger in [ptr, NonNull::from(&mut local), NonNull::dangling()] {
        assert!(matches!(
            release(stranger),
            Err(ReleaseError::NotOwned { .. })
        ));
        assert!(owner_of(stranger).is_none());
    }
    assert_eq!(sim.books().calls.values().sum::<u64>(), calls);
}

#[test]
fn a_registered_policy_is_asked_before_the_backend_in_it() {
    let (sim, _alone) = world();
    register_backend(&LIMITED).unwrap();
    register_backend(&LIMITED).unwrap();
    register_backend(&MINE).unwrap();
    let (ptr, ..) = Buffer::<u8, _>::zeroed(1000, &LIMITED).unwrap().into_raw();
    assert_eq!(owner_of(ptr.cast()).unwrap().kind, "device");
    assert_eq!(leak_report().allocations().len(), 1, "listed once");
    release(ptr.cast()).unwrap();
    assert_eq!(LIMITED.reserved(), 0, "the policy knows of it");
    assert!(sim.books().are_clean());
}

#[test]
fn a_scope_reports_what_was_allocated_in_it() {
    let (_, _alone) = world();
    let before = PINNED.allocate(10, 1).unwrap();
    let guard = LeakGuard::new(&PINNED);
    assert_eq!(guard.report().to_string(), "");
    let line = line!() + 1;
    let block = PINNED.allocate(64, 1).unwrap();
    let text = guard.report().to_string();
    assert!(text.contains(&format!("routing.rs:{line}:")), "{text}");
    assert!(text.contains("64 bytes"), "{text}");
    drop(block);
    assert!(guard.report().is_empty());
    drop(before);
}

/// Runs as a process of its own, started by the tests below.
#[test]
#[ignore = "a child process of the tests below"]
fn child_exits() {
    let (_, _alone) = world();
    cumem::report_leaks_at_exit();
    cumem::report_leaks_at_exit();
    let guard = LeakGuard::new(&UNIFIED);
    if std::env::var("LEAKS").as_deref() == Ok("1") {
        let _ = UNIFIED.allocate(10, 1).unwrap().into_raw();
        for _ in 0..2 {
            let _ = PINNED.allocate(5000, 1).unwrap().into_raw();
        }
    }
    drop(guard);
}

fn child_says(leaks: &str) -> String {
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "child_exits", "--nocapture"])
        .env("LEAKS", leaks)
        .output()
        .unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn leaks_are_reported_at_exit_once_and_the_largest_first() {
    let text = child_says("1");
    assert_eq!(
        text.matches("still live at process exit").count(),
        1,
        "{text}"
    );
    assert_eq!(
        text.matches("still live at the end of a scope").count(),
        1,
        "{text}"
    );
    let at_exit = &text[text.find("still live at process exit").unwrap()..];
    let larger = at_exit
        .find("pinned on device 0: 2 allocations, 10000 bytes")
        .unwrap();
    let smaller = at_exit
        .find("unified on device 0: 1 allocations, 10 bytes")
        .unwrap();
    assert!(larger < smaller, "{text}");
    assert!(at_exit.contains("routing.rs:"), "{text}");
}

#[test]
fn a_clean_run_says_nothing() {
    assert_eq!(child_says("0"), "");
}
