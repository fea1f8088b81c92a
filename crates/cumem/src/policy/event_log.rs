//! A line for every event, from which the traffic can be made again.

use core::fmt;
use core::panic::Location;
use core::ptr::NonNull;
use core::str::FromStr;
use std::collections::HashMap;
use std::io::{self, BufRead, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};

use cumem_backend::{AllocError, MemoryBackend, ReleaseError};

use super::{has_ended, memory_of_inner, same_as_inner};

/// Writes a line for every allocation and every release, in an order in which they could have
/// happened; [`replay`] makes the same traffic again.
///
/// A line is written and the lock on the writer held for that; a release also holds it over the
/// driver's call, so that the line is before that of whoever gets the address next. The writer must
/// not use this backend. Its errors are counted, and nothing else.
///
/// ```
/// use cumem::policy::{Event, EventLog};
/// use cumem::{Allocation, UnifiedBackend};
/// # let sim = cumem_sim::Sim::new();
/// let backend = EventLog::new(UnifiedBackend::new().with_driver(sim.driver()?), Vec::new());
/// drop(Allocation::new_in(&backend, 100, 8)?);
/// let text = String::from_utf8(backend.into_writer())?;
/// let first: Event = text.lines().next().unwrap().parse()?;
/// assert!(matches!(first, Event::Acquired { size: 100, align: 8, .. }));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct EventLog<B, W> {
    pub(super) inner: B,
    writer: Mutex<Log<W>>,
}

#[derive(Debug)]
struct Log<W> {
    writer: W,
    failures: u64,
}

impl<B: MemoryBackend, W: Write + Send> EventLog<B, W> {
    /// Writes what `inner` is asked for to `writer`.
    pub const fn new(inner: B, writer: W) -> Self {
        Self {
            inner,
            writer: Mutex::new(Log {
                writer,
                failures: 0,
            }),
        }
    }

    /// Lines that could not be written.
    #[must_use]
    pub fn write_failures(&self) -> u64 {
        self.log().failures
    }

    /// The writer, with all lines written.
    ///
    /// The backend is dropped.
    #[must_use]
    pub fn into_writer(self) -> W {
        let log = self.writer.into_inner();
        log.unwrap_or_else(PoisonError::into_inner).writer
    }

    /// The backend inside.
    #[must_use]
    pub fn inner(&self) -> &B {
        &self.inner
    }

    fn log(&self) -> MutexGuard<'_, Log<W>> {
        // A writer that panicked leaves at most half a line.
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<W: Write> Log<W> {
    fn write(&mut self, line: fmt::Arguments<'_>) {
        if writeln!(self.writer, "{line}").is_err() {
            self.failures += 1;
        }
    }
}

// SAFETY: all memory is the inner backend's, which answers for it.
unsafe impl<B: MemoryBackend, W: Write + Send> MemoryBackend for EventLog<B, W> {
    same_as_inner!();

    fn acquire(
        &self,
        size: usize,
        align: usize,
        site: &'static Location<'static>,
    ) -> Result<NonNull<u8>, AllocError> {
        let acquired = self.inner.acquire(size, align, site);
        let mut log = self.log();
        match acquired {
            Ok(ptr) => {
                let address = ptr.addr();
                log.write(format_args!("acquired {address:#x} {size} {align} {site}"));
            }
            Err(_) => log.write(format_args!("failed {size} {align} {site}")),
        }
        acquired
    }

    unsafe fn release(&self, ptr: NonNull<u8>) -> Result<(), ReleaseError> {
        let mut log = self.log();
        // SAFETY: the caller's promise is the same one.
        let verdict = unsafe { self.inner.release(ptr) };
        let outcome = if has_ended(&verdict) {
            "released"
        } else {
            "refused"
        };
        log.write(format_args!("{outcome} {:#x}", ptr.addr()));
        verdict
    }
}

memory_of_inner!(EventLog<B, W: (Write + Send)>);

/// One line of an [`EventLog`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// Memory was allocated.
    Acquired {
        /// Its address.
        address: usize,
        /// Bytes that were asked for.
        size: usize,
        /// The alignment that was asked for.
        align: usize,
    },
    /// An allocation failed.
    Failed {
        /// Bytes that were asked for.
        size: usize,
        /// The alignment that was asked for.
        align: usize,
    },
    /// Memory was given back.
    Released {
        /// The address that it had.
        address: usize,
    },
    /// A release was refused: not held, or the driver's answer.
    Refused {
        /// The address.
        address: usize,
    },
}

/// A line that is none of an [`EventLog`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseEventError;

impl fmt::Display for ParseEventError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the line is not one that an event log writes")
    }
}

impl core::error::Error for ParseEventError {}

impl FromStr for Event {
    type Err = ParseEventError;

    fn from_str(line: &str) -> Result<Self, ParseEventError> {
        let mut words = line.split(' ');
        let mut word = || words.next().ok_or(ParseEventError);
        let name = word()?;
        let address = |word: &str| {
            let digits = word.strip_prefix("0x").ok_or(ParseEventError)?;
            usize::from_str_radix(digits, 16).map_err(|_| ParseEventError)
        };
        let number = |word: &str| word.parse().map_err(|_| ParseEventError);
        Ok(match name {
            "acquired" => Self::Acquired {
                address: address(word()?)?,
                size: number(word()?)?,
                align: number(word()?)?,
            },
            "failed" => Self::Failed {
                size: number(word()?)?,
                align: number(word()?)?,
            },
            "released" => Self::Released {
                address: address(word()?)?,
            },
            "refused" => Self::Refused {
                address: address(word()?)?,
            },
            _ => return Err(ParseEventError),
        })
    }
}

/// What came of a [`replay`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Replay {
    /// Allocations that succeeded again.
    pub acquired: u64,
    /// Allocations that succeeded in the log, and failed now.
    pub failed: u64,
    /// Releases that succeeded again.
    pub released: u64,
    /// Blocks that the log never released; they were released at the end.
    pub left: u64,
}

/// Makes the traffic of a log again, in order and on this thread. What the log lists as failed or
/// refused is passed over. All that is allocated is released at the end.
///
/// ```
/// use cumem::UnifiedBackend;
/// use cumem::policy::replay;
/// # let sim = cumem_sim::Sim::new();
/// let log = "acquired 0x1000 64 1 src/main.rs:1:1\nreleased 0x1000\n";
/// let backend = UnifiedBackend::new().with_driver(sim.driver()?);
/// let outcome = replay(log.as_bytes(), &backend)?;
/// assert_eq!((outcome.acquired, outcome.released), (1, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The log can't be read, or holds a line that isn't one.
#[track_caller]
pub fn replay<B: MemoryBackend + ?Sized>(log: impl BufRead, backend: &B) -> io::Result<Replay> {
    let mut live = HashMap::new();
    let mut outcome = Replay::default();
    for line in log.lines() {
        let event = line?
            .parse()
            .map_err(|error: ParseEventError| io::Error::new(io::ErrorKind::InvalidData, error))?;
        match event {
            Event::Acquired {
                address,
                size,
                align,
            } => match cumem_backend::Allocation::new_in(backend, size, align) {
                Ok(block) => {
                    outcome.acquired += 1;
                    live.insert(address, block);
                }
                Err(_) => outcome.failed += 1,
            },
            Event::Released { address } => {
                if let Some(block) = live.remove(&address)
                    && block.try_release().is_ok()
                {
                    outcome.released += 1;
                }
            }
            Event::Failed { .. } | Event::Refused { .. } => {}
        }
    }
    outcome.left = live.len() as u64;
    Ok(outcome)
}
