//! Virtual memory: reserved addresses, physical memory, and mapping one to the other.

use core::ffi::{c_int, c_void};
use core::ptr;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::sync::Arc;

use cumem_sys::{
    CUdeviceptr, CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationGranularity_flags,
    CUmemAllocationHandleType, CUmemAllocationProp, CUmemAllocationType,
    CUmemGenericAllocationHandle, CUmemLocation, CUmemLocationType, CUresult,
};

use super::{Allocation, Store};
use crate::books::Kind;
use crate::instance::{Answer, Instance, State, fresh_handle, put};
use crate::mapping::{Mapping, Protection, nameless_file};

/// What sizes, offsets and addresses are multiples of.
const GRANULARITY: usize = 2 << 20;

/// A range of addresses with nothing behind it.
#[derive(Debug)]
pub(crate) struct Reservation {
    mapping: Mapping,
    bytes: usize,
}

impl Reservation {
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    fn holds(&self, pointer: u64, bytes: usize) -> bool {
        let base = self.mapping.address() as u64;
        pointer >= base
            && pointer
                .checked_add(bytes as u64)
                .is_some_and(|end| end <= base + self.bytes as u64)
    }
}

/// Physical memory: pages that can be seen at several addresses.
#[derive(Debug)]
pub(crate) struct Physical {
    file: OwnedFd,
    view: Mapping,
    bytes: usize,
    device: c_int,
    properties: Properties,
}

/// Properties without the pointer that only Windows uses.
#[derive(Clone, Copy, Debug)]
struct Properties {
    handle_type: CUmemAllocationHandleType,
    location_type: CUmemLocationType,
    location_id: c_int,
    compression: u8,
    rdma: u8,
    usage: u16,
}

impl Physical {
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn device(&self) -> c_int {
        self.device
    }

    pub(crate) fn place(&self, offset: usize) -> *mut u8 {
        ptr::with_exposed_provenance_mut(self.view.address() + offset)
    }

    fn is_of_host(&self) -> bool {
        self.properties.location_type != CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE
    }
}

/// A handle on physical memory, and how many references it has.
#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) physical: Arc<Physical>,
    references: usize,
}

fn properties_of(properties: &CUmemAllocationProp) -> Properties {
    Properties {
        handle_type: properties.requestedHandleTypes,
        location_type: properties.location.type_,
        location_id: properties.location.ordinal(),
        compression: properties.allocFlags.compressionType,
        rdma: properties.allocFlags.gpuDirectRDMACapable,
        usage: properties.allocFlags.usage,
    }
}

impl Instance {
    /// # Safety
    /// `properties` is null, or one can be read there.
    unsafe fn check_properties(
        &self,
        properties: *const CUmemAllocationProp,
    ) -> Answer<CUmemAllocationProp> {
        let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
        if properties.is_null() {
            return Err(invalid);
        }
        // SAFETY: it isn't null, and the caller promises one.
        let one = unsafe { properties.read_unaligned() };
        let handles = [
            CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE,
            CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        ];
        if one.type_ != CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED
            || !handles.contains(&one.requestedHandleTypes)
        {
            return Err(invalid);
        }
        match one.location.type_ {
            CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE => self
                .is_device(one.location.ordinal())
                .map_err(|_| CUresult::CUDA_ERROR_INVALID_DEVICE)?,
            CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST
            | CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA
            | CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT => {}
            _ => return Err(invalid),
        }
        Ok(one)
    }

    /// Physical memory on a file that is large enough.
    fn physical(file: OwnedFd, bytes: usize, properties: Properties) -> Option<Physical> {
        let view = Mapping::shared(bytes, file.as_raw_fd())?;
        let of_device = properties.location_type == CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
        let device = if of_device { properties.location_id } else { 0 };
        Some(Physical {
            file,
            view,
            bytes,
            device,
            properties,
        })
    }
}

fn is_aligned(number: u64) -> bool {
    number.is_multiple_of(GRANULARITY as u64)
}

impl State {
    fn reservation(&self, pointer: u64, bytes: usize) -> Answer<&Reservation> {
        self.reservations
            .range(..=pointer)
            .next_back()
            .map(|(_, one)| one)
            .filter(|one| one.holds(pointer, bytes))
            .ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
    }

    /// The mappings in a range, none of which reaches beyond it.
    fn whole_mappings(&self, pointer: u64, bytes: usize) -> Answer<Vec<u64>> {
        let end = pointer + bytes as u64;
        let cut = |at: u64| {
            let before = self.allocations.range(..at).next_back();
            before.is_some_and(|(&base, one)| base + one.bytes as u64 > at)
        };
        if cut(pointer) || cut(end) {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let inside = self.allocations.range(pointer..end);
        Ok(inside.map(|(&base, _)| base).collect())
    }

    /// The mappings that make up a range, exactly.
    fn mappings(&self, pointer: u64, bytes: usize) -> Answer<Vec<u64>> {
        let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
        let end = pointer.checked_add(bytes as u64).ok_or(invalid)?;
        let mut at = pointer;
        let mut found = Vec::new();
        while at < end {
            let one = self
                .allocations
                .get(&at)
                .filter(|one| one.kind == Kind::Mapped)
                .ok_or(invalid)?;
            found.push(at);
            at += one.bytes as u64;
        }
        if at == end && bytes > 0 {
            Ok(found)
        } else {
            Err(invalid)
        }
    }

    fn handle(&mut self, handle: u64) -> Answer<&mut Handle> {
        self.handles
            .get_mut(&handle)
            .ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
    }

    /// Uncharges physical memory whose last holder is going.
    fn drop_physical(&mut self, physical: Arc<Physical>) {
        if let Some(last) = Arc::into_inner(physical) {
            if last.is_of_host() {
                self.usage.pinned -= last.bytes;
            } else if let Ok(device) = self.device(last.device) {
                device.used -= last.bytes;
            }
        }
    }

    fn hold(&mut self, physical: Arc<Physical>) -> u64 {
        let handle = fresh_handle() as u64;
        self.handles.insert(
            handle,
            Handle {
                physical,
                references: 1,
            },
        );
        handle
    }
}

#[expect(non_snake_case, reason = "the entry points' names")]
impl Instance {
    pub(crate) unsafe fn cuMemAddressReserve(
        &self,
        pointer: *mut CUdeviceptr,
        bytes: usize,
        alignment: usize,
        _wish: CUdeviceptr,
        flags: u64,
    ) -> Answer {
        let bad_alignment = alignment != 0 && !alignment.is_power_of_two();
        if pointer.is_null()
            || bytes == 0
            || !is_aligned(bytes as u64)
            || bad_alignment
            || flags != 0
        {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let mapping = Mapping::anonymous(bytes, alignment.max(GRANULARITY), Protection::None)
            .ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
        let address = mapping.address() as u64;
        self.state()
            .reservations
            .insert(address, Reservation { mapping, bytes });
        // SAFETY: it isn't null, and the caller gave a place for one.
        unsafe { put(pointer, address) }
    }

    pub(crate) unsafe fn cuMemAddressFree(&self, pointer: CUdeviceptr, bytes: usize) -> Answer {
        let mut state = self.state();
        let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
        let whole = state.reservations.get(&pointer).map(|one| one.bytes);
        let end = pointer.saturating_add(bytes as u64);
        if whole != Some(bytes) || state.allocations.range(pointer..end).next().is_some() {
            return Err(invalid);
        }
        state.reservations.remove(&pointer);
        Ok(())
    }

    pub(crate) unsafe fn cuMemCreate(
        &self,
        handle: *mut CUmemGenericAllocationHandle,
        bytes: usize,
        properties: *const CUmemAllocationProp,
        flags: u64,
    ) -> Answer {
        // SAFETY: the caller gave one, or null.
        let properties = unsafe { self.check_properties(properties) }?;
        if handle.is_null() || bytes == 0 || !is_aligned(bytes as u64) || flags != 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let properties = properties_of(&properties);
        let full = CUresult::CUDA_ERROR_OUT_OF_MEMORY;
        let mut state = self.state();
        let of_device = properties.location_type == CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
        let (kind, device) = if of_device {
            (Kind::Physical, properties.location_id)
        } else {
            (Kind::Pinned, 0)
        };
        self.charge(&mut state, kind, device, bytes)?;
        let physical =
            nameless_file(bytes).and_then(|file| Self::physical(file, bytes, properties));
        let Some(physical) = physical else {
            if of_device {
                state.device(device)?.used -= bytes;
            } else {
                state.usage.pinned -= bytes;
            }
            return Err(full);
        };
        let made = state.hold(Arc::new(physical));
        // SAFETY: it isn't null, and the caller gave a place for one.
        unsafe { put(handle, made) }
    }

    pub(crate) unsafe fn cuMemRelease(&self, handle: CUmemGenericAllocationHandle) -> Answer {
        let mut state = self.state();
        let one = state.handle(handle)?;
        one.references -= 1;
        if one.references == 0
            && let Some(one) = state.handles.remove(&handle)
        {
            state.drop_physical(one.physical);
        }
        Ok(())
    }

    pub(crate) unsafe fn cuMemMap(
        &self,
        pointer: CUdeviceptr,
        bytes: usize,
        offset: usize,
        handle: CUmemGenericAllocationHandle,
        flags: u64,
    ) -> Answer {
        let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
        let mut state = self.state();
        let memory = Arc::clone(&state.handle(handle)?.physical);
        let in_range = offset
            .checked_add(bytes)
            .is_some_and(|end| end <= memory.bytes);
        // Of physical memory, the driver maps from the start only.
        if bytes == 0 || !is_aligned(bytes as u64) || offset != 0 || !in_range || flags != 0 {
            return Err(invalid);
        }
        let reservation = state.reservation(pointer, bytes)?;
        let end = pointer + bytes as u64;
        let before = state.allocations.range(..end).next_back();
        if before.is_some_and(|(&base, one)| base + one.bytes as u64 > pointer) {
            return Err(invalid);
        }
        if memory.is_of_host() {
            let file = memory.file.as_raw_fd();
            let at = pointer as usize;
            if !reservation.mapping.overlay(at, bytes, file, offset) {
                return Err(CUresult::CUDA_ERROR_MAP_FAILED);
            }
        }
        let device = memory.device;
        let store = Store::Physical { memory, offset };
        state.insert(pointer, Allocation::new(Kind::Mapped, bytes, store, device));
        Ok(())
    }

    pub(crate) unsafe fn cuMemUnmap(&self, pointer: CUdeviceptr, bytes: usize) -> Answer {
        let state = self.state();
        state.reservation(pointer, bytes)?;
        let device = match state.whole_mappings(pointer, bytes)?.first() {
            Some(first) => state.allocations[first].device,
            None => return Ok(()),
        };
        let ends = state.ends_of_device(device);
        let mut state = self.wait_for(state, &ends);
        for at in state.whole_mappings(pointer, bytes)? {
            let Some(allocation) = state.remove(at) else {
                continue;
            };
            if let Store::Physical { memory, .. } = allocation.store {
                if memory.is_of_host()
                    && let Ok(reservation) = state.reservation(at, allocation.bytes)
                {
                    reservation.mapping.clear(at as usize, allocation.bytes);
                }
                state.drop_physical(memory);
            }
        }
        Ok(())
    }

    pub(crate) unsafe fn cuMemSetAccess(
        &self,
        pointer: CUdeviceptr,
        bytes: usize,
        access: *const CUmemAccessDesc,
        count: usize,
    ) -> Answer {
        let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
        let mut state = self.state();
        let mappings = state.mappings(pointer, bytes)?;
        if access.is_null() || count == 0 {
            return Err(invalid);
        }
        for at in 0..count {
            // SAFETY: it isn't null, and the caller gave `count` of them.
            let one = unsafe { access.add(at).read_unaligned() };
            let reads = one.flags.0 & CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READ.0 != 0;
            let writes = one.flags == CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
            let device = match one.location.type_ {
                CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE => {
                    let device = one.location.ordinal();
                    self.is_device(device)
                        .map_err(|_| CUresult::CUDA_ERROR_INVALID_DEVICE)?;
                    Some(device)
                }
                _ => None,
            };
            for base in &mappings {
                let state = &mut *state;
                let Some(mapping) = state.allocations.get_mut(base) else {
                    continue;
                };
                let Some(device) = device else {
                    let of_host = matches!(&mapping.store,
                        Store::Physical { memory, .. } if memory.is_of_host());
                    if !of_host {
                        return Err(invalid);
                    }
                    let protection = if reads {
                        Protection::ReadWrite
                    } else {
                        Protection::None
                    };
                    let bytes = mapping.bytes;
                    let reservation = state.reservation(*base, bytes)?;
                    reservation
                        .mapping
                        .protect(*base as usize, bytes, protection);
                    continue;
                };
                mapping.readers.remove(&device);
                mapping.writers.remove(&device);
                if reads {
                    mapping.readers.insert(device);
                }
                if writes {
                    mapping.writers.insert(device);
                }
            }
        }
        Ok(())
    }

    pub(crate) unsafe fn cuMemGetAccess(
        &self,
        flags: *mut u64,
        location: *const CUmemLocation,
        pointer: CUdeviceptr,
    ) -> Answer {
        let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
        if location.is_null() {
            return Err(invalid);
        }
        // SAFETY: it isn't null, and the caller gave one.
        let device = unsafe { location.read_unaligned() }.ordinal();
        let state = self.state();
        let (_, one) = state
            .find(pointer)
            .filter(|(_, one)| one.kind == Kind::Mapped)
            .ok_or(invalid)?;
        self.is_device(device)
            .map_err(|_| CUresult::CUDA_ERROR_INVALID_DEVICE)?;
        let answer = if one.writers.contains(&device) {
            CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        } else if one.readers.contains(&device) {
            CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READ
        } else {
            CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE
        };
        // SAFETY: the caller gave a place for one, or null.
        unsafe { put(flags, u64::from(answer.0)) }
    }

    pub(crate) unsafe fn cuMemExportToShareableHandle(
        &self,
        shareable: *mut c_void,
        handle: CUmemGenericAllocationHandle,
        kind: CUmemAllocationHandleType,
        flags: u64,
    ) -> Answer {
        let mut state = self.state();
        let physical = &state.handle(handle)?.physical;
        let file = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        let agreed = kind == file && physical.properties.handle_type == file;
        if shareable.is_null() || flags != 0 || !agreed {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let copy = physical
            .file
            .try_clone()
            .map_err(|_| CUresult::CUDA_ERROR_OPERATING_SYSTEM)?;
        // SAFETY: it isn't null, and the caller gave a place for a file descriptor.
        unsafe { put(shareable.cast::<c_int>(), copy.into_raw_fd()) }
    }

    pub(crate) unsafe fn cuMemImportFromShareableHandle(
        &self,
        handle: *mut CUmemGenericAllocationHandle,
        shareable: *mut c_void,
        kind: CUmemAllocationHandleType,
    ) -> Answer {
        let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
        let file = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        let Ok(number) = c_int::try_from(shareable.addr()) else {
            return Err(invalid);
        };
        if handle.is_null() || kind != file {
            return Err(invalid);
        }
        // SAFETY: the caller lends an open descriptor, of which this makes its own.
        let copy = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 0) };
        if copy < 0 {
            return Err(invalid);
        }
        // SAFETY: the descriptor is fresh, and nobody else's.
        let copy = unsafe { OwnedFd::from_raw_fd(copy) };
        // SAFETY: all bytes zero are valid for that structure of integers.
        let mut status: libc::stat = unsafe { core::mem::zeroed() };
        // SAFETY: the descriptor is open, and there is room for the answer.
        if unsafe { libc::fstat(copy.as_raw_fd(), &mut status) } != 0 {
            return Err(invalid);
        }
        let bytes = usize::try_from(status.st_size).map_err(|_| invalid)?;
        if bytes == 0 || !is_aligned(bytes as u64) {
            return Err(invalid);
        }
        let mut state = self.state();
        let known = state.handles.values().find_map(|one| {
            same_file(&one.physical.file, &status).then(|| Arc::clone(&one.physical))
        });
        let physical = match known {
            Some(physical) => physical,
            None => {
                let properties = Properties {
                    handle_type: file,
                    location_type: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
                    location_id: 0,
                    compression: 0,
                    rdma: 0,
                    usage: 0,
                };
                // Another process's memory is counted here as well, as a second driver would.
                self.charge(&mut state, Kind::Physical, 0, bytes)?;
                let physical = Self::physical(copy, bytes, properties);
                Arc::new(physical.ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?)
            }
        };
        let made = state.hold(physical);
        // SAFETY: it isn't null, and the caller gave a place for one.
        unsafe { put(handle, made) }
    }

    pub(crate) unsafe fn cuMemGetAllocationGranularity(
        &self,
        bytes: *mut usize,
        properties: *const CUmemAllocationProp,
        option: CUmemAllocationGranularity_flags,
    ) -> Answer {
        // SAFETY: the caller gave one, or null.
        unsafe { self.check_properties(properties) }?;
        if option.0 > CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_RECOMMENDED.0 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: the caller gave a place for one, or null.
        unsafe { put(bytes, GRANULARITY) }
    }

    pub(crate) unsafe fn cuMemGetAllocationPropertiesFromHandle(
        &self,
        properties: *mut CUmemAllocationProp,
        handle: CUmemGenericAllocationHandle,
    ) -> Answer {
        let mut state = self.state();
        let one = state.handle(handle)?.physical.properties;
        // SAFETY: all bytes zero are valid for that structure of integers and a pointer.
        let mut answer: CUmemAllocationProp = unsafe { core::mem::zeroed() };
        answer.type_ = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
        answer.requestedHandleTypes = one.handle_type;
        answer.location = CUmemLocation::device(one.location_id);
        answer.location.type_ = one.location_type;
        answer.allocFlags.compressionType = one.compression;
        answer.allocFlags.gpuDirectRDMACapable = one.rdma;
        answer.allocFlags.usage = one.usage;
        // SAFETY: the caller gave a place for one, or null.
        unsafe { put(properties, answer) }
    }

    pub(crate) unsafe fn cuMemRetainAllocationHandle(
        &self,
        handle: *mut CUmemGenericAllocationHandle,
        address: *mut c_void,
    ) -> Answer {
        let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
        let mut state = self.state();
        let (_, one) = state.find(address.addr() as u64).ok_or(invalid)?;
        let Store::Physical { memory, .. } = &one.store else {
            return Err(invalid);
        };
        let memory = Arc::clone(memory);
        let known = state
            .handles
            .iter()
            .find(|(_, one)| Arc::ptr_eq(&one.physical, &memory))
            .map(|(&handle, _)| handle);
        let retained = match known {
            Some(known) => {
                state.handle(known)?.references += 1;
                known
            }
            None => state.hold(memory),
        };
        // SAFETY: the caller gave a place for one, or null.
        unsafe { put(handle, retained) }
    }
}

fn same_file(file: &OwnedFd, status: &libc::stat) -> bool {
    // SAFETY: all bytes zero are valid for that structure of integers.
    let mut own: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: the descriptor is open, and there is room for the answer.
    let found = unsafe { libc::fstat(file.as_raw_fd(), &mut own) } == 0;
    found && own.st_dev == status.st_dev && own.st_ino == status.st_ino
}
