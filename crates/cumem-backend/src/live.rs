//! What a backend holds, and a report of it.

use core::fmt;
use core::panic::Location;
use core::ptr::NonNull;

use cumem_sys::{CUcontext, CUresult};

/// One live allocation, as it was at one moment.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct LiveAllocation {
    /// The kind of memory, such as `"unified"`.
    pub kind: &'static str,
    /// The device's ordinal.
    pub device: i32,
    /// The pointer that the caller got.
    pub ptr: NonNull<u8>,
    /// Bytes that the caller asked for.
    pub size: usize,
    /// Bytes that the driver was asked for; larger than `size` only if the alignment needed it.
    pub reserved: usize,
    /// The context that it was allocated in.
    pub context: CUcontext,
    /// The code with which the driver last refused to free it, if it did. Such an allocation is
    /// still live and can be released again.
    pub refused: Option<CUresult>,
    /// Where it was allocated.
    pub site: &'static Location<'static>,
}

impl LiveAllocation {
    /// What a backend of another kind than this crate's says of memory that it holds: as much was
    /// reserved as was asked for, in no context that is known, and no release was refused.
    #[must_use]
    pub fn new(
        kind: &'static str,
        device: i32,
        ptr: NonNull<u8>,
        size: usize,
        site: &'static Location<'static>,
    ) -> Self {
        Self {
            kind,
            device,
            ptr,
            size,
            reserved: size,
            context: core::ptr::null_mut(),
            refused: None,
            site,
        }
    }
}

/// Allocations grouped by the source line that made them, the most bytes first.
///
/// Made by [`Backend::leak_report`](crate::Backend::leak_report). Displays as nothing at all when
/// nothing is live.
#[derive(Clone, Debug, Default)]
pub struct LeakReport {
    allocations: Vec<LiveAllocation>,
}

impl LeakReport {
    /// Everything that was live, in no particular order.
    #[must_use]
    pub fn allocations(&self) -> &[LiveAllocation] {
        &self.allocations
    }

    /// Whether nothing was live.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.allocations.is_empty()
    }

    /// The bytes of all of it.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.allocations.iter().map(|live| live.size).sum()
    }
}

impl FromIterator<LiveAllocation> for LeakReport {
    fn from_iter<I: IntoIterator<Item = LiveAllocation>>(allocations: I) -> Self {
        let mut allocations: Vec<_> = allocations.into_iter().collect();
        allocations.sort_by_key(|live| (line_of(live), live.ptr));
        Self { allocations }
    }
}

impl Extend<LiveAllocation> for LeakReport {
    fn extend<I: IntoIterator<Item = LiveAllocation>>(&mut self, allocations: I) {
        let all = core::mem::take(&mut self.allocations);
        *self = all.into_iter().chain(allocations).collect();
    }
}

/// What makes two allocations belong to one group.
fn line_of(live: &LiveAllocation) -> (&'static str, i32, &'static str, u32, u32) {
    let site = live.site;
    (
        live.kind,
        live.device,
        site.file(),
        site.line(),
        site.column(),
    )
}

impl fmt::Display for LeakReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return Ok(());
        }
        let mut groups: Vec<&[LiveAllocation]> = self
            .allocations
            .chunk_by(|a, b| line_of(a) == line_of(b))
            .collect();
        let bytes_of = |group: &[LiveAllocation]| group.iter().map(|live| live.size).sum::<usize>();
        groups.sort_by_key(|group| core::cmp::Reverse(bytes_of(group)));
        writeln!(
            f,
            "{} live allocations, {} bytes",
            self.allocations.len(),
            self.bytes()
        )?;
        for group in groups {
            let first = &group[0];
            writeln!(
                f,
                "  {} on device {}: {} allocations, {} bytes, from {}",
                first.kind,
                first.device,
                group.len(),
                bytes_of(group),
                first.site,
            )?;
            for live in group {
                write!(f, "    {:p} {} bytes", live.ptr, live.size)?;
                if let Some(code) = live.refused {
                    write!(f, ", the driver refused to free it (code {})", code.0)?;
                }
                writeln!(f)?;
            }
        }
        Ok(())
    }
}
