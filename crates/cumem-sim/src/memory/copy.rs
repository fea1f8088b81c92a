//! Copies and sets, which move real bytes.

use core::ffi::c_void;
use core::ptr;

use cumem_sys::{CUdeviceptr, CUresult, CUstream};

use super::Store;
use crate::books::Kind;
use crate::instance::{Answer, Instance, State};
use crate::stream::Work;

/// Bytes on their way.
#[derive(Debug)]
pub(crate) struct Transfer {
    source: Source,
    to: Place,
}

#[derive(Debug)]
enum Source {
    Memory(Place),
    /// Copied aside when the work was put in, as the driver does with pageable memory.
    Staged(Box<[u8]>),
    Pattern {
        bytes: [u8; 4],
        width: usize,
    },
}

/// Where bytes are, and what keeps them there.
#[derive(Debug)]
struct Place {
    /// One piece, or several where a range goes over several mappings of physical memory.
    pieces: Vec<Piece>,
    _kept: Vec<Store>,
}

#[derive(Clone, Copy, Debug)]
struct Piece {
    pointer: *mut u8,
    bytes: usize,
}

impl Place {
    /// The program's own memory.
    fn own(pointer: u64, bytes: usize) -> Self {
        let pointer = ptr::with_exposed_provenance_mut(pointer as usize);
        Self {
            pieces: vec![Piece { pointer, bytes }],
            _kept: Vec::new(),
        }
    }
}

// SAFETY: the bytes are the driver's, or the program's own, which it lends until the work is done;
// they may be reached from any thread.
unsafe impl Send for Transfer {}

impl Transfer {
    /// Moves the bytes.
    pub(crate) fn run(&self) {
        match &self.source {
            Source::Memory(from) => copy_pieces(&from.pieces, &self.to.pieces),
            Source::Staged(bytes) => {
                let staged = Piece {
                    pointer: bytes.as_ptr().cast_mut(),
                    bytes: bytes.len(),
                };
                copy_pieces(&[staged], &self.to.pieces);
            }
            Source::Pattern { bytes, width: 1 } => {
                for piece in &self.to.pieces {
                    // SAFETY: the piece holds that many bytes: allocations were checked to, and are
                    // kept; for its own memory the program promised it.
                    unsafe { piece.pointer.write_bytes(bytes[0], piece.bytes) };
                }
            }
            Source::Pattern { bytes, width } => {
                let mut pattern = bytes[..*width].iter().copied().cycle();
                for piece in &self.to.pieces {
                    for (at, byte) in pattern.by_ref().take(piece.bytes).enumerate() {
                        // SAFETY: as above.
                        unsafe { piece.pointer.add(at).write(byte) };
                    }
                }
            }
        }
    }
}

/// Copies as many bytes as the target has.
fn copy_pieces(from: &[Piece], to: &[Piece]) {
    let mut sources = from.iter().copied();
    let mut source = Piece {
        pointer: ptr::null_mut(),
        bytes: 0,
    };
    for target in to {
        let mut done = 0;
        while done < target.bytes {
            if source.bytes == 0 {
                match sources.next() {
                    Some(next) => source = next,
                    None => return,
                }
            }
            let count = source.bytes.min(target.bytes - done);
            // SAFETY: both pieces hold that many bytes: allocations were checked to, and are kept;
            // for its own memory the program promised it.
            unsafe { ptr::copy(source.pointer, target.pointer.add(done), count) };
            source.pointer = source.pointer.wrapping_add(count);
            source.bytes -= count;
            done += count;
        }
    }
}

/// What a side of a copy may be, besides memory that the driver knows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    /// The program's own memory.
    Host,
    /// Nothing.
    Device,
}

/// A side of a copy, found.
struct Found {
    place: Place,
    /// The kind of memory; `None` for the program's own.
    kind: Option<Kind>,
}

impl State {
    /// The bytes of a range of memory that the driver knows: within one allocation, or over mappings
    /// that touch.
    fn pieces(&self, pointer: u64, bytes: usize) -> Answer<Place> {
        let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
        let mut place = Place {
            pieces: Vec::new(),
            _kept: Vec::new(),
        };
        let mut done = 0;
        while done < bytes {
            let at = pointer.checked_add(done as u64).ok_or(invalid)?;
            let (base, allocation) = self.find(at).ok_or(invalid)?;
            let is_mapped = allocation.kind == Kind::Mapped;
            if is_mapped && allocation.readers.is_empty() || !is_mapped && done > 0 {
                return Err(invalid);
            }
            let offset = (at - base) as usize;
            let count = (allocation.bytes - offset).min(bytes - done);
            place.pieces.push(Piece {
                pointer: allocation.store.place(offset),
                bytes: count,
            });
            place._kept.push(allocation.store.clone());
            done += count;
            if !is_mapped && done < bytes {
                return Err(invalid);
            }
        }
        Ok(place)
    }

    fn side(&self, pointer: u64, bytes: usize, side: Side) -> Answer<Found> {
        let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
        if let Some((_, allocation)) = self.find(pointer) {
            return Ok(Found {
                kind: Some(allocation.kind),
                place: self.pieces(pointer, bytes)?,
            });
        }
        let reserved = self
            .reservations
            .range(..=pointer)
            .next_back()
            .is_some_and(|(&base, one)| pointer - base < one.bytes() as u64);
        if side == Side::Device || pointer == 0 || reserved {
            return Err(invalid);
        }
        Ok(Found {
            place: Place::own(pointer, bytes),
            kind: None,
        })
    }
}

/// When a call returns.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Returns {
    WhenDone,
    AtOnce,
}

impl Instance {
    fn copy(
        &self,
        (to, to_side): (u64, Side),
        (from, from_side): (u64, Side),
        bytes: usize,
        stream: Option<CUstream>,
    ) -> Answer {
        let mut state = self.state();
        let current = self.current(&state)?;
        let handle = state.stream(current, stream.unwrap_or(ptr::null_mut()))?;
        if bytes == 0 {
            return Ok(());
        }
        let source = state.side(from, bytes, from_side)?;
        let target = state.side(to, bytes, to_side)?;
        let within_device = source.kind.is_some_and(|kind| !is_host(kind))
            && target.kind.is_some_and(|kind| !is_host(kind));
        let returns = match stream {
            // Into pageable memory there is no asynchronous way.
            Some(_) if target.kind.is_none() => Returns::WhenDone,
            Some(_) => Returns::AtOnce,
            None if within_device => Returns::AtOnce,
            None => Returns::WhenDone,
        };
        let own: *const u8 = ptr::with_exposed_provenance(from as usize);
        let source = if stream.is_some() && source.kind.is_none() && returns == Returns::AtOnce {
            // SAFETY: the program promised that it may be read for that many bytes.
            let staged = unsafe { core::slice::from_raw_parts(own, bytes) };
            Source::Staged(staged.into())
        } else {
            Source::Memory(source.place)
        };
        let work = Work::Transfer(Transfer {
            source,
            to: target.place,
        });
        match (returns, stream) {
            (Returns::WhenDone, _) => self.run_now(state, handle, work),
            (Returns::AtOnce, None) => self.run_soon(state, handle, work),
            (Returns::AtOnce, Some(_)) => self.enqueue(&mut state, handle, work).map(|_| ()),
        }
    }

    fn set(
        &self,
        to: CUdeviceptr,
        pattern: [u8; 4],
        width: usize,
        count: usize,
        stream: Option<CUstream>,
    ) -> Answer {
        let mut state = self.state();
        let current = self.current(&state)?;
        let handle = state.stream(current, stream.unwrap_or(ptr::null_mut()))?;
        if count == 0 {
            return Ok(());
        }
        let bytes = count
            .checked_mul(width)
            .filter(|_| to.is_multiple_of(width as u64))
            .ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let target = state.side(to, bytes, Side::Device)?;
        let pinned = target.kind.is_some_and(is_host);
        let work = Work::Transfer(Transfer {
            source: Source::Pattern {
                bytes: pattern,
                width,
            },
            to: target.place,
        });
        match stream {
            Some(_) => self.enqueue(&mut state, handle, work).map(|_| ()),
            None if pinned => self.run_now(state, handle, work),
            None => self.run_soon(state, handle, work),
        }
    }
}

/// Whether memory of that kind lies in page-locked host memory.
fn is_host(kind: Kind) -> bool {
    matches!(kind, Kind::Pinned | Kind::Registered)
}

/// A pointer of the program's as an address that can be turned back.
fn address(pointer: *const c_void) -> u64 {
    pointer.expose_provenance() as u64
}

#[expect(non_snake_case, reason = "the entry points' names")]
impl Instance {
    pub(crate) unsafe fn cuMemcpy(
        &self,
        to: CUdeviceptr,
        from: CUdeviceptr,
        bytes: usize,
    ) -> Answer {
        self.copy((to, Side::Host), (from, Side::Host), bytes, None)
    }

    pub(crate) unsafe fn cuMemcpyHtoD_v2(
        &self,
        to: CUdeviceptr,
        from: *const c_void,
        bytes: usize,
    ) -> Answer {
        self.copy((to, Side::Device), (address(from), Side::Host), bytes, None)
    }

    pub(crate) unsafe fn cuMemcpyDtoH_v2(
        &self,
        to: *mut c_void,
        from: CUdeviceptr,
        bytes: usize,
    ) -> Answer {
        self.copy((address(to), Side::Host), (from, Side::Device), bytes, None)
    }

    pub(crate) unsafe fn cuMemcpyDtoD_v2(
        &self,
        to: CUdeviceptr,
        from: CUdeviceptr,
        bytes: usize,
    ) -> Answer {
        self.copy((to, Side::Device), (from, Side::Device), bytes, None)
    }

    pub(crate) unsafe fn cuMemcpyAsync(
        &self,
        to: CUdeviceptr,
        from: CUdeviceptr,
        bytes: usize,
        stream: CUstream,
    ) -> Answer {
        self.copy((to, Side::Host), (from, Side::Host), bytes, Some(stream))
    }

    pub(crate) unsafe fn cuMemcpyHtoDAsync_v2(
        &self,
        to: CUdeviceptr,
        from: *const c_void,
        bytes: usize,
        stream: CUstream,
    ) -> Answer {
        let from = (address(from), Side::Host);
        self.copy((to, Side::Device), from, bytes, Some(stream))
    }

    pub(crate) unsafe fn cuMemcpyDtoHAsync_v2(
        &self,
        to: *mut c_void,
        from: CUdeviceptr,
        bytes: usize,
        stream: CUstream,
    ) -> Answer {
        let to = (address(to), Side::Host);
        self.copy(to, (from, Side::Device), bytes, Some(stream))
    }

    pub(crate) unsafe fn cuMemcpyDtoDAsync_v2(
        &self,
        to: CUdeviceptr,
        from: CUdeviceptr,
        bytes: usize,
        stream: CUstream,
    ) -> Answer {
        let from = (from, Side::Device);
        self.copy((to, Side::Device), from, bytes, Some(stream))
    }

    pub(crate) unsafe fn cuMemsetD8_v2(&self, to: CUdeviceptr, value: u8, count: usize) -> Answer {
        self.set(to, [value, 0, 0, 0], 1, count, None)
    }

    pub(crate) unsafe fn cuMemsetD16_v2(
        &self,
        to: CUdeviceptr,
        value: u16,
        count: usize,
    ) -> Answer {
        let [low, high] = value.to_ne_bytes();
        self.set(to, [low, high, 0, 0], 2, count, None)
    }

    pub(crate) unsafe fn cuMemsetD32_v2(
        &self,
        to: CUdeviceptr,
        value: u32,
        count: usize,
    ) -> Answer {
        self.set(to, value.to_ne_bytes(), 4, count, None)
    }

    pub(crate) unsafe fn cuMemsetD8Async(
        &self,
        to: CUdeviceptr,
        value: u8,
        count: usize,
        stream: CUstream,
    ) -> Answer {
        self.set(to, [value, 0, 0, 0], 1, count, Some(stream))
    }

    pub(crate) unsafe fn cuMemsetD16Async(
        &self,
        to: CUdeviceptr,
        value: u16,
        count: usize,
        stream: CUstream,
    ) -> Answer {
        let [low, high] = value.to_ne_bytes();
        self.set(to, [low, high, 0, 0], 2, count, Some(stream))
    }

    pub(crate) unsafe fn cuMemsetD32Async(
        &self,
        to: CUdeviceptr,
        value: u32,
        count: usize,
        stream: CUstream,
    ) -> Answer {
        self.set(to, value.to_ne_bytes(), 4, count, Some(stream))
    }
}
