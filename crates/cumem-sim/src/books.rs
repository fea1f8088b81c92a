//! What a simulated driver knows of its use.

use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};
use std::collections::{BTreeMap, HashMap};

use crate::table::{Call, ENTRIES, EntryKind};

/// A kind of memory, by how it was made.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum Kind {
    /// `cuMemAlloc_v2`.
    Device,
    /// `cuMemAllocManaged`.
    Managed,
    /// `cuMemHostAlloc`.
    Pinned,
    /// `cuMemHostRegister_v2`.
    Registered,
    /// `cuMemAllocAsync` and `cuMemAllocFromPoolAsync`.
    StreamOrdered,
    /// `cuMemCreate`: physical memory, which has a handle and no address.
    Physical,
    /// `cuMemMap`: a mapping of physical memory.
    Mapped,
    /// `cuMemAddressReserve`: addresses with nothing behind them.
    Reserved,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Device => "device",
            Self::Managed => "managed",
            Self::Pinned => "pinned",
            Self::Registered => "registered",
            Self::StreamOrdered => "stream-ordered",
            Self::Physical => "physical",
            Self::Mapped => "mapped",
            Self::Reserved => "reserved",
        })
    }
}

/// Something that was made and not given back.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Live {
    /// Its address; for physical memory, its handle.
    pub pointer: u64,
    /// The size that was asked for, in bytes.
    pub bytes: usize,
    /// How it was made.
    pub kind: Kind,
    /// The ordinal of its device; for host memory, of the context's.
    pub device: i32,
    /// The context that was current when it was made; 0 for what belongs to none.
    pub context: u64,
}

/// Why a free was refused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Refusal {
    /// It had been freed already. An address that has been handed out again since is live, so its
    /// double free can't be told from a right one.
    DoubleFree,
    /// It is live, and of a kind that another entry point frees, or the pointer is inside it.
    WrongEntry,
    /// It was never the start of any allocation.
    Unknown,
}

/// A free that was refused.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct RefusedFree {
    /// Why.
    pub why: Refusal,
    /// The pointer that was to be freed.
    pub pointer: u64,
    /// The entry point that was called.
    pub call: &'static str,
    /// The kind of memory that is, or was, at that address; `None` if there never was any.
    pub kind: Option<Kind>,
}

/// What a destroyed context took with it.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Leak {
    /// The context.
    pub context: u64,
    /// The ordinal of its device.
    pub device: i32,
    /// How many allocations it held.
    pub count: usize,
    /// Their bytes.
    pub bytes: usize,
}

/// A copy of the books of a simulated driver, as they were at one moment.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Books {
    /// What is allocated and not freed, by address.
    pub live: Vec<Live>,
    /// Frees of what had been freed already.
    pub double_frees: u64,
    /// Frees of live memory through another kind's entry point, or in its middle.
    pub wrong_entry_frees: u64,
    /// Frees of pointers that were never the start of any allocation.
    pub unknown_frees: u64,
    /// All refused frees, in order.
    pub refused_frees: Vec<RefusedFree>,
    /// How many allocations ended with their context, and were never freed.
    pub ended_with_context: u64,
    /// What destroyed contexts took with them, in order; contexts that held nothing aren't listed.
    pub leaked: Vec<Leak>,
    /// How often each entry point was called, failed calls included; those never called are absent.
    pub calls: BTreeMap<&'static str, u64>,
    /// How often each entry point answered something other than success.
    pub failures: BTreeMap<&'static str, u64>,
    /// Calls of legacy entry points, whatever they answered.
    pub legacy_calls: u64,
    /// Calls that a fault hit.
    pub faults: u64,
}

impl Books {
    /// How often an entry point was called.
    #[must_use]
    pub fn calls_of(&self, name: &str) -> u64 {
        self.calls.get(name).copied().unwrap_or(0)
    }

    /// How often an entry point failed.
    #[must_use]
    pub fn failures_of(&self, name: &str) -> u64 {
        self.failures.get(name).copied().unwrap_or(0)
    }

    /// What is live of one kind.
    pub fn live_of(&self, kind: Kind) -> impl Iterator<Item = &Live> {
        self.live.iter().filter(move |live| live.kind == kind)
    }

    /// The bytes that are live, of all kinds.
    #[must_use]
    pub fn live_bytes(&self) -> usize {
        self.live.iter().map(|live| live.bytes).sum()
    }

    /// The bytes that are live of one kind.
    #[must_use]
    pub fn live_bytes_of(&self, kind: Kind) -> usize {
        self.live_of(kind).map(|live| live.bytes).sum()
    }

    /// Whether nothing is live, and no free was refused. What ended with its context is not counted
    /// against it.
    #[must_use]
    pub fn are_clean(&self) -> bool {
        self.live.is_empty() && self.refused_frees.is_empty()
    }
}

impl fmt::Display for Books {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "books of the simulated CUDA driver:")?;
        writeln!(f, "  live: {}", self.live.len())?;
        for live in &self.live {
            writeln!(
                f,
                "    {:#x}: {} bytes, {}, device {}",
                live.pointer, live.bytes, live.kind, live.device
            )?;
        }
        writeln!(
            f,
            "  refused frees: {} of what was freed, {} through the wrong entry point, {} of unknown \
             pointers",
            self.double_frees, self.wrong_entry_frees, self.unknown_frees
        )?;
        for bad in &self.refused_frees {
            writeln!(f, "    {:#x} by {}", bad.pointer, bad.call)?;
        }
        writeln!(f, "  lost with their context: {}", self.leaked.len())?;
        for leak in &self.leaked {
            writeln!(
                f,
                "    context {:#x} of device {}: {} allocations, {} bytes",
                leak.context, leak.device, leak.count, leak.bytes
            )?;
        }
        writeln!(f, "  calls of legacy entry points: {}", self.legacy_calls)?;
        writeln!(f, "  calls hit by a fault: {}", self.faults)?;
        writeln!(f, "  calls (failed):")?;
        for (name, count) in &self.calls {
            writeln!(f, "    {name}: {count} ({})", self.failures_of(name))?;
        }
        Ok(())
    }
}

/// Counters that every call touches.
#[derive(Debug)]
pub(crate) struct Counters {
    calls: Box<[AtomicU64]>,
    failures: Box<[AtomicU64]>,
    faults: AtomicU64,
}

impl Counters {
    pub(crate) fn new() -> Self {
        let zeros = || ENTRIES.iter().map(|_| AtomicU64::new(0)).collect();
        Self {
            calls: zeros(),
            failures: zeros(),
            faults: AtomicU64::new(0),
        }
    }

    // Relaxed, here and below: plain counts. Who reads one after a call has returned is ordered
    // after it by whatever told it so.
    #[inline]
    pub(crate) fn called(&self, call: Call) {
        self.calls[call as usize].fetch_add(1, Ordering::Relaxed);
    }

    #[cold]
    pub(crate) fn failed(&self, call: Call) {
        self.failures[call as usize].fetch_add(1, Ordering::Relaxed);
    }

    #[cold]
    pub(crate) fn fault(&self) {
        self.faults.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn reset(&self) {
        for counter in self.calls.iter().chain(&self.failures) {
            counter.store(0, Ordering::Relaxed);
        }
        self.faults.store(0, Ordering::Relaxed);
    }

    pub(crate) fn fill(&self, books: &mut Books) {
        for (at, entry) in ENTRIES.iter().enumerate() {
            let calls = self.calls[at].load(Ordering::Relaxed);
            if calls > 0 {
                books.calls.insert(entry.name, calls);
                if entry.kind == EntryKind::Legacy {
                    books.legacy_calls += calls;
                }
            }
            let failures = self.failures[at].load(Ordering::Relaxed);
            if failures > 0 {
                books.failures.insert(entry.name, failures);
            }
        }
        books.faults = self.faults.load(Ordering::Relaxed);
    }
}

/// What the books remember of frees and of contexts.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// What was last at an address where nothing is now.
    pub(crate) freed: HashMap<u64, Kind>,
    pub(crate) refused: Vec<RefusedFree>,
    pub(crate) leaked: Vec<Leak>,
}

impl History {
    /// Notes a free of an address where nothing begins that this call could free.
    pub(crate) fn refused(&mut self, pointer: u64, call: Call, live: Option<Kind>) {
        let call = call.entry().name;
        let (why, kind) = match (live, self.freed.get(&pointer)) {
            (Some(kind), _) => (Refusal::WrongEntry, Some(kind)),
            (None, Some(&kind)) => (Refusal::DoubleFree, Some(kind)),
            (None, None) => (Refusal::Unknown, None),
        };
        self.refused.push(RefusedFree {
            why,
            pointer,
            call,
            kind,
        });
    }

    pub(crate) fn fill(&self, books: &mut Books) {
        let count = |why| self.refused.iter().filter(|one| one.why == why).count() as u64;
        books.double_frees = count(Refusal::DoubleFree);
        books.wrong_entry_frees = count(Refusal::WrongEntry);
        books.unknown_frees = count(Refusal::Unknown);
        books.refused_frees.clone_from(&self.refused);
        books.leaked.clone_from(&self.leaked);
        books.ended_with_context = self.leaked.iter().map(|leak| leak.count as u64).sum();
    }
}
