//! Memory at the end of a process, and in a forked child.
//!
//! Each case runs in a process of its own: an ignored test of this file, started by another.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]
#![cfg(unix)]

use std::process::{Command, Output};
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use cumem::{MemoryBackend, ReleaseError, UnifiedBackend};
use cumem_sim::{Sim, TestDriver};

fn run_alone(test: &str) -> Output {
    Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", test, "--nocapture"])
        .output()
        .unwrap()
}

/// A backend as a program would have it: for the life of the process.
struct World {
    sim: Option<Sim>,
    backend: &'static UnifiedBackend,
}

static BACKEND: UnifiedBackend = UnifiedBackend::new();

fn world() -> &'static World {
    static WORLD: OnceLock<World> = OnceLock::new();
    WORLD.get_or_init(|| {
        let TestDriver { driver, sim } = TestDriver::new(Sim::builder()).unwrap();
        BACKEND.set_driver(driver).unwrap();
        World {
            sim,
            backend: &BACKEND,
        }
    })
}

/// The block that the handler below tries to release.
static BLOCK: AtomicUsize = AtomicUsize::new(0);

extern "C" fn release_at_exit() {
    let world = world();
    let address = BLOCK.load(Ordering::SeqCst);
    let ptr = NonNull::new(std::ptr::with_exposed_provenance_mut(address)).unwrap();
    // SAFETY: nothing uses the memory.
    let verdict = unsafe { world.backend.release(ptr) };
    assert!(matches!(verdict, Err(ReleaseError::ProcessExit { .. })));
    assert_eq!(world.backend.statistics().left_to_process_exit, 1);
    if let Some(sim) = &world.sim {
        assert_eq!(sim.books().calls_of("cuMemFree_v2"), 0);
    }
    println!("the driver was left alone");
}

#[test]
fn a_release_after_exit_began_leaves_the_driver_alone() {
    let output = run_alone("child_releases_at_exit");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("the driver was left alone"), "{text}");
}

#[test]
#[ignore = "runs in a process of its own, started by the test above"]
fn child_releases_at_exit() {
    // Registered before the backend's own handler, so it runs after that.
    // SAFETY: the handler is a plain function.
    unsafe { libc::atexit(release_at_exit) };
    let (ptr, ..) = world().backend.allocate(4096, 1).unwrap().into_raw();
    BLOCK.store(ptr.as_ptr().expose_provenance(), Ordering::SeqCst);
}

#[test]
fn a_forked_child_leaves_its_parents_memory_alone() {
    let output = run_alone("child_forks");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("the parent went on"), "{text}");
}

#[test]
#[ignore = "runs in a process of its own, started by the test above"]
fn child_forks() {
    let world = world();
    let block = world.backend.allocate(4096, 1).unwrap();
    // SAFETY: the child only reads memory, makes calls that take no lock held elsewhere, and ends
    // by `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let ptr = NonNull::new(block.as_ptr()).unwrap();
        // SAFETY: nothing uses the memory in this process.
        let verdict = unsafe { world.backend.release(ptr) };
        let refused = matches!(verdict, Err(ReleaseError::Forked { .. }));
        let allocation = world.backend.allocate(4096, 1);
        let says_so = allocation.is_err_and(|error| error.to_string().contains("forked"));
        // SAFETY: ends this process at once.
        unsafe { libc::_exit(if refused && says_so { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: waits for the child that was just made.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0);
    block.try_release().unwrap();
    if let Some(sim) = &world.sim {
        assert!(sim.books().are_clean());
    }
    println!("the parent went on");
}

thread_local! {
    static HELD: std::cell::RefCell<Vec<cumem::Allocation<&'static UnifiedBackend>>> =
        const { std::cell::RefCell::new(Vec::new()) };
}

#[test]
fn memory_held_by_a_thread_goes_back_when_the_thread_ends() {
    let world = world();
    std::thread::spawn(move || {
        for _ in 0..3 {
            let block = world.backend.allocate(4096, 1).unwrap();
            HELD.with_borrow_mut(|held| held.push(block));
        }
    })
    .join()
    .unwrap();
    assert_eq!(world.backend.statistics().live, 0);
    assert_eq!(world.backend.statistics().released, 3);
}

#[test]
fn memory_goes_back_while_a_panic_unwinds() {
    let sim = Sim::builder().build();
    let backend = UnifiedBackend::new().with_driver(sim.driver().unwrap());
    let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _block = backend.allocate(4096, 1).unwrap();
        std::panic::resume_unwind(Box::new("on purpose"));
    }));
    assert!(unwound.is_err());
    assert_eq!(backend.statistics().released, 1);
    assert!(sim.books().are_clean());
}
