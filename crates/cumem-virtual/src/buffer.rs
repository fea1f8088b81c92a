//! The buffer.

use core::fmt;
use core::mem;

use cumem_backend::{DeviceContext, process_is_exiting};
use cumem_sys::{
    CUdeviceptr, CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationGranularity_flags,
    CUmemAllocationHandleType, CUmemAllocationProp, CUmemAllocationType, CUmemLocation, CuError,
    Driver,
};

use crate::error::VirtualError;

/// A range of device addresses, of which the first part has memory behind it.
///
/// The host can't touch it. `Send` and `Sync`. On drop everything goes back; a refusal by the
/// driver is kept from nobody who calls [`try_release`](Self::try_release) instead.
///
/// # Invariants
/// `granules` mappings of `granule` bytes each lie one after the other from `base` on; all of them
/// are open to the devices of `access`, and to no other.
pub struct VirtualBuffer {
    context: DeviceContext,
    base: CUdeviceptr,
    reserved: usize,
    granule: usize,
    granules: usize,
    /// Ordinals of the devices that may use the memory; the owner's first.
    access: Vec<i32>,
}

impl VirtualBuffer {
    /// Reserves addresses for up to `bytes`, rounded up to whole granules, of memory of the device
    /// with this ordinal, of the process-wide driver. No memory is taken yet.
    ///
    /// # Errors
    /// No driver, no such device, a device without virtual memory management, or no addresses left.
    pub fn reserve(ordinal: i32, bytes: usize) -> Result<Self, VirtualError> {
        let driver = Driver::global().map_err(VirtualError::Driver)?;
        Self::reserve_with(driver, ordinal, bytes)
    }

    /// [`reserve`](Self::reserve) with another driver.
    ///
    /// # Errors
    /// As for [`reserve`](Self::reserve).
    pub fn reserve_with(driver: &Driver, ordinal: i32, bytes: usize) -> Result<Self, VirtualError> {
        let refused = |error| VirtualError::Refused {
            device: ordinal,
            bytes,
            mapped: 0,
            error,
        };
        if bytes == 0 {
            return Err(VirtualError::Size { bytes });
        }
        let context = DeviceContext::retain(driver, ordinal).map_err(refused)?;
        let (granule, base, reserved) = {
            let _entered = context.enter().map_err(refused)?;
            let granule = driver
                .mem_get_allocation_granularity(
                    &properties(ordinal),
                    CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_MINIMUM,
                )
                .map_err(refused)?;
            let reserved = bytes
                .checked_next_multiple_of(granule)
                .ok_or(VirtualError::Size { bytes })?;
            let base = driver
                .mem_address_reserve(reserved, 0, 0)
                .map_err(refused)?;
            (granule, base, reserved)
        };
        Ok(Self {
            context,
            base,
            reserved,
            granule,
            granules: 0,
            access: vec![ordinal],
        })
    }

    /// The first address. It never changes.
    #[must_use]
    pub fn device_ptr(&self) -> CUdeviceptr {
        self.base
    }

    /// Bytes that have memory behind them: a multiple of the [granule](Self::granule).
    #[must_use]
    pub fn mapped(&self) -> usize {
        self.granules * self.granule
    }

    /// Bytes of addresses that are reserved.
    #[must_use]
    pub fn reserved(&self) -> usize {
        self.reserved
    }

    /// The bytes in which memory comes and goes, as the device has it.
    #[must_use]
    pub fn granule(&self) -> usize {
        self.granule
    }

    /// The ordinals of the devices that may use the memory.
    #[must_use]
    pub fn devices(&self) -> &[i32] {
        &self.access
    }

    /// Puts memory behind the first `bytes`, rounded up to whole granules. What has memory already
    /// keeps it, and its contents; less than that is no change.
    ///
    /// # Errors
    /// [`VirtualError::BeyondReservation`], or what the driver answered; the buffer is then as it
    /// was before. Only should the driver refuse to take back what this call had mapped, which it
    /// has no reason to, is it [`VirtualError::Stuck`], and larger.
    pub fn grow_to(&mut self, bytes: usize) -> Result<(), VirtualError> {
        if bytes > self.reserved {
            return Err(VirtualError::BeyondReservation {
                bytes,
                reserved: self.reserved,
            });
        }
        let before = self.granules;
        let wanted = bytes.div_ceil(self.granule);
        while self.granules < wanted {
            if let Err(error) = self.map_next() {
                let mapped = before * self.granule;
                // SAFETY: nobody knows of the memory that this call mapped.
                unsafe { self.unmap_down_to(before) }?;
                return Err(VirtualError::Refused {
                    device: self.context.ordinal(),
                    bytes,
                    mapped,
                    error,
                });
            }
        }
        Ok(())
    }

    /// Takes away the memory beyond the first `bytes`, rounded up to whole granules.
    ///
    /// # Errors
    /// [`VirtualError::Stuck`] if the driver refuses; what it took until then is gone.
    ///
    /// # Safety
    /// No work on any device uses the memory that is taken away.
    pub unsafe fn shrink_to(&mut self, bytes: usize) -> Result<(), VirtualError> {
        // SAFETY: the caller's promise.
        unsafe { self.unmap_down_to(bytes.div_ceil(self.granule)) }
    }

    /// Sets which devices may use the memory, present and future, beside its own. They must be able
    /// to reach it ([`Driver::device_can_access_peer`]).
    ///
    /// # Errors
    /// No such device, or the driver's answer; the same devices as before have access. Should the
    /// driver refuse even to restore that, it is [`VirtualError::Stuck`].
    ///
    /// # Safety
    /// No work under way on a device that loses its access uses the memory.
    pub unsafe fn set_devices(&mut self, ordinals: &[i32]) -> Result<(), VirtualError> {
        let mut access = vec![self.context.ordinal()];
        for &ordinal in ordinals {
            self.context
                .driver()
                .device_get(ordinal)
                .map_err(|error| self.refused(ordinal, error))?;
            if !access.contains(&ordinal) {
                access.push(ordinal);
            }
        }
        let only_in = |one: &[i32], other: &[i32]| -> Vec<i32> {
            one.iter()
                .copied()
                .filter(|ordinal| !other.contains(ordinal))
                .collect()
        };
        let opened = only_in(&access, &self.access);
        let closed = only_in(&self.access, &access);
        let changed = self
            .set_access(&opened, READ_WRITE)
            .and_then(|()| self.set_access(&closed, NO_ACCESS));
        if let Err(error) = changed {
            self.set_access(&closed, READ_WRITE)
                .and_then(|()| self.set_access(&opened, NO_ACCESS))
                .map_err(|error| self.stuck(error))?;
            return Err(self.refused(self.context.ordinal(), error));
        }
        self.access = access;
        Ok(())
    }

    /// Gives memory and addresses back now, and says how that went. The buffer can't grow again.
    ///
    /// # Errors
    /// Why the driver refused; the buffer still has what it did not take, and this can be tried
    /// again.
    ///
    /// # Safety
    /// No work on any device uses the buffer.
    pub unsafe fn try_release(&mut self) -> Result<(), VirtualError> {
        self.give_back()
    }

    /// Maps one more granule.
    fn map_next(&mut self) -> Result<(), CuError> {
        let place = self.base + self.mapped() as CUdeviceptr;
        let driver = self.context.driver();
        let _entered = self.context.enter()?;
        let handle = driver.mem_create(self.granule, &properties(self.context.ordinal()))?;
        // SAFETY: the handle is fresh, and the place is reserved with nothing mapped in it.
        let mapped = unsafe { driver.mem_map(place, self.granule, 0, handle) };
        // A mapping keeps the memory; without one it goes at once.
        // SAFETY: the handle is ours and is not used any more.
        let released = unsafe { driver.mem_release(handle) };
        mapped?;
        // From here on the granule is counted, so that whoever undoes the growth takes it away too.
        self.granules += 1;
        released?;
        let access = descriptions(&self.access, READ_WRITE);
        // SAFETY: the range was mapped just above, and nothing uses it yet.
        unsafe { driver.mem_set_access(place, self.granule, &access) }
    }

    /// # Safety
    /// No work on any device uses the memory that is taken away.
    unsafe fn unmap_down_to(&mut self, granules: usize) -> Result<(), VirtualError> {
        while self.granules > granules {
            let place = self.base + ((self.granules - 1) * self.granule) as CUdeviceptr;
            let unmapped = self.context.enter().and_then(|_entered| {
                // SAFETY: the range is one whole mapping, and the caller promises that nothing
                // uses it.
                unsafe { self.context.driver().mem_unmap(place, self.granule) }
            });
            if let Err(error) = unmapped {
                return Err(self.stuck(error));
            }
            self.granules -= 1;
        }
        Ok(())
    }

    fn set_access(&self, ordinals: &[i32], flags: CUmemAccess_flags) -> Result<(), CuError> {
        if ordinals.is_empty() || self.granules == 0 {
            return Ok(());
        }
        let _entered = self.context.enter()?;
        let access = descriptions(ordinals, flags);
        // SAFETY: the range is mapped; a device that loses access is one that the owner chose to
        // take it from.
        unsafe {
            self.context
                .driver()
                .mem_set_access(self.base, self.mapped(), &access)
        }
    }

    /// Unmaps and frees; done once, as the addresses are then 0.
    fn give_back(&mut self) -> Result<(), VirtualError> {
        if self.reserved == 0 {
            return Ok(());
        }
        if process_is_exiting() || self.context.driver().is_forked() {
            return Ok(());
        }
        // SAFETY: the owner gives the buffer up.
        unsafe { self.unmap_down_to(0) }?;
        let freed = self.context.enter().and_then(|_entered| {
            // SAFETY: the range is one whole reservation, and nothing is mapped in it.
            unsafe {
                self.context
                    .driver()
                    .mem_address_free(self.base, self.reserved)
            }
        });
        freed.map_err(|error| self.stuck(error))?;
        self.reserved = 0;
        Ok(())
    }

    fn refused(&self, device: i32, error: CuError) -> VirtualError {
        VirtualError::Refused {
            device,
            bytes: self.mapped(),
            mapped: self.mapped(),
            error,
        }
    }

    fn stuck(&self, error: CuError) -> VirtualError {
        VirtualError::Stuck {
            device: self.context.ordinal(),
            mapped: self.mapped(),
            error,
        }
    }
}

const READ_WRITE: CUmemAccess_flags = CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
const NO_ACCESS: CUmemAccess_flags = CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE;

fn properties(ordinal: i32) -> CUmemAllocationProp {
    // SAFETY: integers and null pointers are valid with all bytes zero, and zero is what the manual
    // asks for in what is reserved.
    let mut properties: CUmemAllocationProp = unsafe { mem::zeroed() };
    properties.type_ = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.requestedHandleTypes = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE;
    properties.location = CUmemLocation::device(ordinal);
    properties
}

fn descriptions(ordinals: &[i32], flags: CUmemAccess_flags) -> Vec<CUmemAccessDesc> {
    ordinals
        .iter()
        .map(|&ordinal| CUmemAccessDesc {
            location: CUmemLocation::device(ordinal),
            flags,
        })
        .collect()
}

impl Drop for VirtualBuffer {
    fn drop(&mut self) {
        // What the driver refuses to take stays with the process until it ends.
        let _ = self.give_back();
    }
}

impl fmt::Debug for VirtualBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VirtualBuffer")
            .field("device", &self.context.ordinal())
            .field("base", &format_args!("{:#x}", self.base))
            .field("mapped", &self.mapped())
            .field("reserved", &self.reserved)
            .finish_non_exhaustive()
    }
}
