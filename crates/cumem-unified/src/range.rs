//! Advice, prefetching and questions about a range of managed memory.

use core::error::Error;
use core::fmt;
use core::marker::PhantomData;
use core::ops::{Bound, RangeBounds};

use cumem_backend::{Allocation, Entered, HostAccess, MemoryBackend};
use cumem_sys::{
    CUdevice_attribute, CUdeviceptr, CUmem_advise, CUmem_range_attribute, CUmemLocation, CUresult,
    CUstream, CuError, Driver,
};

/// A range of bytes of a managed allocation, borrowed from it.
///
/// Advice and prefetching change where pages lie, never what they hold, so a shared borrow is
/// enough. The driver works on whole pages. Any thread can call these, whatever context it has: the
/// one that the memory was allocated in is made current for the call.
#[derive(Clone, Copy, Debug)]
pub struct ManagedRange<'a> {
    driver: &'a Driver,
    pointer: CUdeviceptr,
    bytes: usize,
    _allocation: PhantomData<&'a ()>,
}

/// Why advice or a prefetch had no effect.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum AdviceError {
    /// The memory is not managed.
    NotManaged,
    /// The range reaches beyond the allocation, or is empty.
    OutOfRange,
    /// The driver has no such call, or the device no concurrent managed access, without which
    /// there is nothing to advise.
    Unsupported(CuError),
    /// The driver refused for another reason.
    Refused(CuError),
}

impl From<CuError> for AdviceError {
    fn from(error: CuError) -> Self {
        // A device without concurrent managed access answers "invalid device" to all advice.
        let unsupported = error.missing_symbol().is_some()
            || matches!(
                error.code(),
                CUresult::CUDA_ERROR_INVALID_DEVICE | CUresult::CUDA_ERROR_NOT_SUPPORTED
            );
        if unsupported {
            Self::Unsupported(error)
        } else {
            Self::Refused(error)
        }
    }
}

impl fmt::Display for AdviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotManaged => f.write_str("the memory is not managed memory"),
            Self::OutOfRange => f.write_str("the range is empty, or reaches beyond the allocation"),
            Self::Unsupported(error) => write!(
                f,
                "not supported here (advice and prefetching need concurrent managed access): \
                 {error}"
            ),
            Self::Refused(error) => write!(f, "the driver refused: {error}"),
        }
    }
}

impl Error for AdviceError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Unsupported(error) | Self::Refused(error) => Some(error),
            _ => None,
        }
    }
}

impl<'a> ManagedRange<'a> {
    /// The whole of an allocation of managed memory, whose backend calls `driver`.
    ///
    /// # Errors
    /// [`AdviceError::NotManaged`] for another kind of memory.
    pub fn of<B: MemoryBackend>(
        driver: &'a Driver,
        allocation: &'a Allocation<B>,
    ) -> Result<Self, AdviceError> {
        if allocation.backend().host_access() != HostAccess::Managed {
            return Err(AdviceError::NotManaged);
        }
        Ok(Self {
            driver,
            pointer: allocation.device_ptr(),
            bytes: allocation.size(),
            _allocation: PhantomData,
        })
    }

    /// A part of this range, in bytes from its start.
    ///
    /// # Errors
    /// [`AdviceError::OutOfRange`] if there is no such part, or it is empty.
    pub fn slice(self, part: impl RangeBounds<usize>) -> Result<Self, AdviceError> {
        let start = match part.start_bound() {
            Bound::Included(&start) => Some(start),
            Bound::Excluded(&before) => before.checked_add(1),
            Bound::Unbounded => Some(0),
        };
        let end = match part.end_bound() {
            Bound::Included(&last) => last.checked_add(1),
            Bound::Excluded(&end) => Some(end),
            Bound::Unbounded => Some(self.bytes),
        };
        match (start, end) {
            (Some(start), Some(end)) if start < end && end <= self.bytes => Ok(Self {
                pointer: self.pointer + start as CUdeviceptr,
                bytes: end - start,
                ..self
            }),
            _ => Err(AdviceError::OutOfRange),
        }
    }

    /// Bytes in the range.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Lets every processor that reads the range have a copy of its own; a write ends the copies.
    ///
    /// # Errors
    /// [`AdviceError`] says whether it is unsupported or was refused; nothing has changed.
    pub fn set_read_mostly(&self, read_mostly: bool) -> Result<(), AdviceError> {
        let advice = if read_mostly {
            CUmem_advise::CU_MEM_ADVISE_SET_READ_MOSTLY
        } else {
            CUmem_advise::CU_MEM_ADVISE_UNSET_READ_MOSTLY
        };
        // The location means nothing for this advice, but has to be one that exists.
        self.advise(advice, CUmemLocation::host())
    }

    /// Where the pages should lie; `None` leaves it to the driver again.
    ///
    /// # Errors
    /// As for [`set_read_mostly`](Self::set_read_mostly).
    pub fn set_preferred_location(
        &self,
        location: Option<CUmemLocation>,
    ) -> Result<(), AdviceError> {
        match location {
            Some(location) => {
                self.advise(CUmem_advise::CU_MEM_ADVISE_SET_PREFERRED_LOCATION, location)
            }
            None => self.advise(
                CUmem_advise::CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION,
                CUmemLocation::host(),
            ),
        }
    }

    /// Whether a processor should have the range mapped, wherever its pages lie, so that its
    /// accesses don't fault.
    ///
    /// # Errors
    /// As for [`set_read_mostly`](Self::set_read_mostly).
    pub fn set_accessed_by(
        &self,
        location: CUmemLocation,
        accessed: bool,
    ) -> Result<(), AdviceError> {
        let advice = if accessed {
            CUmem_advise::CU_MEM_ADVISE_SET_ACCESSED_BY
        } else {
            CUmem_advise::CU_MEM_ADVISE_UNSET_ACCESSED_BY
        };
        self.advise(advice, location)
    }

    fn advise(&self, advice: CUmem_advise, location: CUmemLocation) -> Result<(), AdviceError> {
        let _entered = self.enter()?;
        self.driver
            .mem_advise(self.pointer, self.bytes, advice, location)?;
        Ok(())
    }

    /// Moves the pages to a device or to the host, in the order of `stream`.
    ///
    /// # Errors
    /// As for [`set_read_mostly`](Self::set_read_mostly).
    ///
    /// # Safety
    /// The stream is live, or null, which means that of the context that the memory was allocated
    /// in; the allocation is not released before the stream has passed this.
    pub unsafe fn prefetch_to(
        &self,
        location: CUmemLocation,
        stream: CUstream,
    ) -> Result<(), AdviceError> {
        let _entered = self.enter()?;
        // SAFETY: the caller's promise; the null stream is that of the memory's own context.
        unsafe {
            self.driver
                .mem_prefetch_async(self.pointer, self.bytes, location, stream)
        }?;
        Ok(())
    }

    /// Whether the whole range is advised as read mostly.
    ///
    /// # Errors
    /// The driver's answer.
    pub fn is_read_mostly(&self) -> Result<bool, AdviceError> {
        let attribute = CUmem_range_attribute::CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY;
        Ok(self.attribute(attribute)? != 0)
    }

    /// The preferred location of the whole range, if it has one.
    ///
    /// # Errors
    /// The driver's answer.
    pub fn preferred_location(&self) -> Result<Option<CUmemLocation>, AdviceError> {
        self.location(CUmem_range_attribute::CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION)
    }

    /// Where the whole range was last prefetched to, if it was. The pages may have moved since.
    ///
    /// # Errors
    /// The driver's answer.
    pub fn last_prefetch_location(&self) -> Result<Option<CUmemLocation>, AdviceError> {
        self.location(CUmem_range_attribute::CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION)
    }

    /// Whether the whole range is advised to be mapped for a device.
    ///
    /// # Errors
    /// The driver's answer.
    pub fn is_accessed_by_device(&self, ordinal: i32) -> Result<bool, AdviceError> {
        let _entered = self.enter()?;
        let count = self.driver.device_get_count()?;
        let mut devices = vec![0; usize::try_from(count).unwrap_or(0) + 1];
        self.driver
            .mem_range_get_accessed_by(self.pointer, self.bytes, &mut devices)?;
        Ok(devices.contains(&ordinal))
    }

    fn location(
        &self,
        attribute: CUmem_range_attribute,
    ) -> Result<Option<CUmemLocation>, AdviceError> {
        Ok(match self.attribute(attribute)? {
            -1 => Some(CUmemLocation::host()),
            ordinal if ordinal >= 0 => Some(CUmemLocation::device(ordinal)),
            _ => None,
        })
    }

    fn enter(&self) -> Result<Entered<'_>, CuError> {
        Entered::context_of(self.driver, self.pointer)
    }

    fn attribute(&self, attribute: CUmem_range_attribute) -> Result<i32, AdviceError> {
        let _entered = self.enter()?;
        Ok(self
            .driver
            .mem_range_get_attribute(attribute, self.pointer, self.bytes)?)
    }
}

/// Whether the host may touch managed memory at any time on the device with this ordinal.
///
/// [`HostAccess::Always`]: at any time, even while kernels run. [`HostAccess::Managed`]: only while
/// no kernel runs on the device, as on Windows, WSL and Tegra; a host access beside a kernel ends
/// the process there.
///
/// # Errors
/// No such device, or the driver's answer.
pub fn host_access_now(driver: &Driver, ordinal: i32) -> Result<HostAccess, CuError> {
    let device = driver.device_get(ordinal)?;
    let attribute = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS;
    Ok(match driver.device_get_attribute(attribute, device)? {
        0 => HostAccess::Managed,
        _ => HostAccess::Always,
    })
}
