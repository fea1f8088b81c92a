//! What is still held, said on request, at the end of a scope, or at the end of the process.

use std::io::Write;
use std::sync::Once;

use cumem_backend::LeakReport;

use crate::access::DriverBackend;
use crate::routing;

/// Everything that the default and the [registered](crate::register_backend) backends hold, grouped
/// by the line that allocated it, the most bytes first. Displays as nothing if that is nothing.
///
/// A block that a policy and the backend in it both report is listed once.
///
/// ```
/// let report = cumem::leak_report();
/// assert!(report.is_empty());
/// print!("{report}"); // prints nothing
/// ```
#[must_use]
pub fn leak_report() -> LeakReport {
    let mut live = Vec::new();
    let mut seen = std::collections::HashSet::new();
    for backend in routing::all() {
        backend.for_each_live(&mut |allocation| {
            if seen.insert(allocation.ptr) {
                live.push(allocation);
            }
        });
    }
    live.into_iter().collect()
}

/// Says at the end of a scope what was allocated in it and not released.
///
/// Made for the life of a test or a phase of a program; what was live before isn't reported. Dropping
/// it writes the report to standard error, and writes nothing for a clean run.
///
/// ```
/// use cumem::{LeakGuard, UnifiedBackend};
/// # let sim = cumem_sim::Sim::new();
/// let backend = UnifiedBackend::new().with_driver(sim.driver()?);
/// let guard = LeakGuard::new(&backend);
/// let block = backend.allocate(64, 1)?;
/// assert_eq!(guard.report().bytes(), 64);
/// drop(block);
/// assert!(guard.report().is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct LeakGuard<B: DriverBackend> {
    backend: B,
    /// What was live before, by address and line.
    before: Vec<(usize, &'static core::panic::Location<'static>)>,
}

impl<B: DriverBackend> LeakGuard<B> {
    /// Begins the scope.
    pub fn new(backend: B) -> Self {
        let mut before = Vec::new();
        backend.for_each_live(&mut |live| before.push((live.ptr.addr().get(), live.site)));
        Self { backend, before }
    }

    /// What was allocated since and is live.
    #[must_use]
    pub fn report(&self) -> LeakReport {
        let mut live = Vec::new();
        self.backend.for_each_live(&mut |allocation| {
            let known = (allocation.ptr.addr().get(), allocation.site);
            if !self.before.contains(&known) {
                live.push(allocation);
            }
        });
        live.into_iter().collect()
    }
}

impl<B: DriverBackend> Drop for LeakGuard<B> {
    fn drop(&mut self) {
        write_report(&self.report(), "still live at the end of a scope");
    }
}

impl<B: DriverBackend> core::fmt::Debug for LeakGuard<B> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("LeakGuard")
            .field("kind", &self.backend.kind_name())
            .field("live_before", &self.before.len())
            .finish()
    }
}

/// Has the process write the [`leak_report`] to standard error when it exits, if anything is live
/// then. Asking again changes nothing.
///
/// What it lists was live when `exit` began, or `main` returned: the destructors of statics and of
/// the main thread's thread-locals may come after it. The driver isn't called.
///
/// ```
/// cumem::report_leaks_at_exit();
/// // Nothing was allocated, so nothing is written.
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn report_leaks_at_exit() {
    extern "C" fn write() {
        write_report(&leak_report(), "still live at process exit");
    }
    static ASKED: Once = Once::new();
    ASKED.call_once(|| {
        // SAFETY: `write` is a function of the program that takes nothing and doesn't unwind. Were
        // the C library's table full, there would be no report.
        unsafe { libc::atexit(write) };
    });
}

fn write_report(report: &LeakReport, when: &str) {
    if !report.is_empty() {
        // Nobody is left to hear of a standard error that can't be written to.
        let _ = write!(std::io::stderr(), "cumem: {when}: {report}");
    }
}
