//! Managed memory, and what the program says of its use.

use core::ffi::{c_int, c_uint, c_void};
use std::collections::{BTreeMap, BTreeSet};

use cumem_sys::{
    CUdevice, CUdeviceptr, CUmem_advise, CUmem_range_attribute, CUmemAttach_flags, CUmemLocation,
    CUmemLocationType, CUresult, CUstream,
};

use super::Allocation;
use crate::books::Kind;
use crate::instance::{Answer, Instance, State, put};
use crate::stream::Work;

const PAGE: u64 = 4096;

/// The number that stands for the host where a device ordinal is expected.
const HOST: c_int = -1;
/// The number that stands for no place.
const NOWHERE: c_int = -2;

/// Where memory is to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Place {
    kind: CUmemLocationType,
    id: c_int,
}

impl Place {
    fn of(location: CUmemLocation) -> Self {
        let kind = location.type_;
        let id = match kind {
            CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST => 0,
            _ => location.ordinal(),
        };
        Self { kind, id }
    }

    /// From the number of the older calls.
    fn of_device(device: CUdevice) -> Self {
        if device == HOST {
            Self::of(CUmemLocation::host())
        } else {
            Self::of(CUmemLocation::device(device))
        }
    }

    fn is_device(self) -> bool {
        self.kind == CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE
    }

    /// As the older calls number it.
    fn number(self) -> c_int {
        if self.is_device() { self.id } else { HOST }
    }
}

/// What is said of one page.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
struct PageAdvice {
    read_mostly: bool,
    preferred: Option<Place>,
    accessed_by: BTreeSet<c_int>,
    last_prefetch: Option<Place>,
}

/// What is said of the pages of an allocation. Each entry holds from its page on up to the next
/// entry; before the first, nothing was said.
#[derive(Clone, Default, Debug)]
pub(crate) struct Advice {
    from: BTreeMap<u64, PageAdvice>,
}

impl Advice {
    fn at(&self, page: u64) -> PageAdvice {
        let entry = self.from.range(..=page).next_back();
        entry.map(|(_, advice)| advice.clone()).unwrap_or_default()
    }

    /// Changes pages `first..end`.
    fn change(&mut self, first: u64, end: u64, change: impl Fn(&mut PageAdvice)) {
        let (before, after) = (self.at(first), self.at(end));
        self.from.entry(first).or_insert(before);
        self.from.entry(end).or_insert(after);
        for (_, advice) in self.from.range_mut(first..end) {
            change(advice);
        }
    }

    /// What is said of pages `first..end`, run by run.
    fn runs(&self, first: u64, end: u64) -> Vec<PageAdvice> {
        let mut runs = vec![self.at(first)];
        runs.extend(self.from.range(first + 1..end).map(|(_, one)| one.clone()));
        runs
    }
}

/// The pages of a range, counted from page 0 of the address space.
fn pages(pointer: CUdeviceptr, bytes: usize) -> (u64, u64) {
    (pointer / PAGE, (pointer + bytes as u64).div_ceil(PAGE))
}

impl State {
    /// The managed allocation that holds a whole range.
    fn managed(&mut self, pointer: CUdeviceptr, bytes: usize) -> Answer<&mut Allocation> {
        let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
        let (base, allocation) = self.find(pointer).ok_or(invalid)?;
        let fits = bytes > 0 && bytes as u64 <= allocation.bytes as u64 - (pointer - base);
        if allocation.kind != Kind::Managed || !fits {
            return Err(invalid);
        }
        self.allocations.get_mut(&base).ok_or(invalid)
    }
}

impl Instance {
    /// Whether a place can be named, and memory can move there while others touch it.
    fn check_place(&self, place: Place) -> Answer {
        match place.kind {
            CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE => {
                self.is_device(place.id)?;
                if self.config().concurrent_managed_access() {
                    Ok(())
                } else {
                    Err(CUresult::CUDA_ERROR_INVALID_DEVICE)
                }
            }
            CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST => Ok(()),
            CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA if place.id == 0 => Ok(()),
            CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT => Ok(()),
            _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        }
    }

    fn advise(
        &self,
        pointer: CUdeviceptr,
        bytes: usize,
        advice: CUmem_advise,
        place: Place,
    ) -> Answer {
        let mut state = self.state();
        self.current(&state)?;
        if place.is_device() {
            // Unlike prefetching, which has a code of its own for it.
            self.is_device(place.id)
                .map_err(|_| CUresult::CUDA_ERROR_INVALID_VALUE)?;
        }
        let allocation = state.managed(pointer, bytes)?;
        let (first, end) = pages(pointer, bytes);
        use CUmem_advise as A;
        let all = &mut allocation.advice;
        match advice {
            A::CU_MEM_ADVISE_SET_READ_MOSTLY => {
                all.change(first, end, |one| one.read_mostly = true);
            }
            A::CU_MEM_ADVISE_UNSET_READ_MOSTLY => {
                all.change(first, end, |one| one.read_mostly = false);
            }
            A::CU_MEM_ADVISE_SET_PREFERRED_LOCATION => {
                self.check_place(place)?;
                all.change(first, end, |one| one.preferred = Some(place));
            }
            A::CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION => {
                all.change(first, end, |one| one.preferred = None);
            }
            A::CU_MEM_ADVISE_SET_ACCESSED_BY => {
                self.check_place(place)?;
                all.change(first, end, |one| {
                    one.accessed_by.insert(place.number());
                });
            }
            A::CU_MEM_ADVISE_UNSET_ACCESSED_BY => {
                self.check_place(place)?;
                all.change(first, end, |one| {
                    one.accessed_by.remove(&place.number());
                });
            }
            _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        }
        Ok(())
    }

    fn prefetch(
        &self,
        pointer: CUdeviceptr,
        bytes: usize,
        place: Place,
        stream: CUstream,
    ) -> Answer {
        let mut state = self.state();
        let handle = self.find_stream(&mut state, stream)?;
        let allocation = state.managed(pointer, bytes)?;
        self.check_place(place)?;
        let (first, end) = pages(pointer, bytes);
        allocation
            .advice
            .change(first, end, |one| one.last_prefetch = Some(place));
        // The bytes are where they always are; only the order counts.
        self.enqueue(&mut state, handle, Work::Nothing)?;
        Ok(())
    }
}

/// The value of a range attribute of one number, `None` if there is no such attribute.
fn number_of(attribute: CUmem_range_attribute, runs: &[PageAdvice]) -> Option<c_int> {
    use CUmem_range_attribute as R;
    let common = |place: fn(&PageAdvice) -> Option<Place>| {
        let first = place(&runs[0]);
        first.filter(|_| runs.iter().all(|run| place(run) == first))
    };
    let preferred = || common(|run| run.preferred);
    let prefetched = || common(|run| run.last_prefetch);
    let kind = |place: Option<Place>| {
        place.map_or(CUmemLocationType::CU_MEM_LOCATION_TYPE_INVALID, |it| {
            it.kind
        })
    };
    Some(match attribute {
        R::CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY => {
            c_int::from(runs.iter().all(|run| run.read_mostly))
        }
        R::CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION => preferred().map_or(NOWHERE, Place::number),
        R::CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION => {
            prefetched().map_or(NOWHERE, Place::number)
        }
        R::CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE => kind(preferred()).0 as c_int,
        R::CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID => preferred().map_or(0, |it| it.id),
        R::CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE => kind(prefetched()).0 as c_int,
        R::CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID => prefetched().map_or(0, |it| it.id),
        _ => return None,
    })
}

/// Writes a range attribute.
///
/// # Safety
/// `data` is null, or valid for `bytes` bytes.
unsafe fn put_attribute(
    data: *mut c_void,
    bytes: usize,
    attribute: CUmem_range_attribute,
    runs: &[PageAdvice],
) -> Answer {
    let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
    if data.is_null() {
        return Err(invalid);
    }
    if attribute == CUmem_range_attribute::CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY {
        if bytes == 0 || !bytes.is_multiple_of(4) {
            return Err(invalid);
        }
        let mut common = runs[0].accessed_by.clone();
        common.retain(|device| runs.iter().all(|run| run.accessed_by.contains(device)));
        let mut devices = common.into_iter();
        for at in 0..bytes / 4 {
            // SAFETY: the caller's promise.
            unsafe {
                put(
                    data.cast::<c_int>().add(at),
                    devices.next().unwrap_or(NOWHERE),
                )
            }?;
        }
        return Ok(());
    }
    let value = number_of(attribute, runs).ok_or(invalid)?;
    if bytes != 4 {
        return Err(invalid);
    }
    // SAFETY: the caller's promise.
    unsafe { put(data.cast::<c_int>(), value) }
}

#[expect(non_snake_case, reason = "the entry points' names")]
impl Instance {
    pub(crate) unsafe fn cuMemAllocManaged(
        &self,
        pointer: *mut CUdeviceptr,
        bytes: usize,
        flags: c_uint,
    ) -> Answer {
        let mut state = self.state();
        let current = self.current(&state)?;
        let flag = CUmemAttach_flags(flags);
        let known = flag == CUmemAttach_flags::CU_MEM_ATTACH_GLOBAL
            || flag == CUmemAttach_flags::CU_MEM_ATTACH_HOST;
        if pointer.is_null() || bytes == 0 || !known {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let address = self.allocate(&mut state, Kind::Managed, flags, current, bytes)?;
        // SAFETY: it isn't null, and the caller gave a place for one.
        unsafe { put(pointer, address) }
    }

    pub(crate) unsafe fn cuMemAdvise(
        &self,
        pointer: CUdeviceptr,
        bytes: usize,
        advice: CUmem_advise,
        device: CUdevice,
    ) -> Answer {
        self.advise(pointer, bytes, advice, Place::of_device(device))
    }

    pub(crate) unsafe fn cuMemAdvise_v2(
        &self,
        pointer: CUdeviceptr,
        bytes: usize,
        advice: CUmem_advise,
        location: CUmemLocation,
    ) -> Answer {
        self.advise(pointer, bytes, advice, Place::of(location))
    }

    pub(crate) unsafe fn cuMemPrefetchAsync(
        &self,
        pointer: CUdeviceptr,
        bytes: usize,
        device: CUdevice,
        stream: CUstream,
    ) -> Answer {
        self.prefetch(pointer, bytes, Place::of_device(device), stream)
    }

    pub(crate) unsafe fn cuMemPrefetchAsync_v2(
        &self,
        pointer: CUdeviceptr,
        bytes: usize,
        location: CUmemLocation,
        flags: c_uint,
        stream: CUstream,
    ) -> Answer {
        if flags != 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        self.prefetch(pointer, bytes, Place::of(location), stream)
    }

    pub(crate) unsafe fn cuMemRangeGetAttribute(
        &self,
        data: *mut c_void,
        bytes: usize,
        attribute: CUmem_range_attribute,
        pointer: CUdeviceptr,
        length: usize,
    ) -> Answer {
        let mut state = self.state();
        self.current(&state)?;
        let (first, end) = pages(pointer, length);
        let runs = state.managed(pointer, length)?.advice.runs(first, end);
        // SAFETY: the caller gave `bytes` bytes.
        unsafe { put_attribute(data, bytes, attribute, &runs) }
    }

    pub(crate) unsafe fn cuMemRangeGetAttributes(
        &self,
        data: *mut *mut c_void,
        sizes: *mut usize,
        attributes: *mut CUmem_range_attribute,
        count: usize,
        pointer: CUdeviceptr,
        length: usize,
    ) -> Answer {
        if data.is_null() || sizes.is_null() || attributes.is_null() || count == 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let mut state = self.state();
        self.current(&state)?;
        let (first, end) = pages(pointer, length);
        let runs = state.managed(pointer, length)?.advice.runs(first, end);
        for at in 0..count {
            // SAFETY: the caller gave `count` of each, and each place has the size that is said.
            unsafe {
                put_attribute(
                    data.add(at).read_unaligned(),
                    sizes.add(at).read_unaligned(),
                    attributes.add(at).read_unaligned(),
                    &runs,
                )
            }?;
        }
        Ok(())
    }
}
