//! The driver's own pools of device memory.

use core::error::Error;
use core::ffi::c_int;
use core::fmt;
use core::mem;

use cumem_backend::{process_is_exiting, watch_process_exit};
use cumem_sys::{
    CUmemAllocationHandleType, CUmemAllocationType, CUmemLocation, CUmemPool_attribute,
    CUmemPoolProps, CUmemoryPool, CuError, Driver, LoadError,
};

/// A pool from which stream-ordered memory comes (CUDA Driver API, Stream Ordered Memory
/// Allocator).
///
/// A pool keeps memory that was released, for the next allocation. How much it keeps when the host
/// next waits for the device is its release threshold, which is 0 unless it is set: then reuse of a
/// gibibyte costs tens of milliseconds instead of microseconds.
///
/// A pool that was [created](Self::create) is destroyed on drop; memory that is still allocated from
/// it stays valid until it is released. `Send` and `Sync`.
pub struct MemoryPool {
    driver: Driver,
    handle: CUmemoryPool,
    owned: bool,
}

// SAFETY: the handle is a name that the driver takes on any thread, at the same time from several.
unsafe impl Send for MemoryPool {}
// SAFETY: as above.
unsafe impl Sync for MemoryPool {}

/// What the driver says of a pool, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolStatistics {
    /// Memory that the pool has from the system now.
    pub reserved: u64,
    /// The most that it ever had, or since [`MemoryPool::reset_peaks`].
    pub reserved_peak: u64,
    /// Memory that is allocated from it now.
    pub used: u64,
    /// The most that ever was, or since [`MemoryPool::reset_peaks`].
    pub used_peak: u64,
}

/// Why a pool could not be had or used.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum PoolError {
    /// There is no usable driver.
    Driver(&'static LoadError),
    /// The driver refused; a driver or a device without pools says so here.
    Refused(CuError),
}

impl fmt::Display for PoolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Driver(error) => write!(f, "no usable CUDA driver: {error}"),
            Self::Refused(error) => write!(f, "the driver refused a pool operation: {error}"),
        }
    }
}

impl Error for PoolError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Driver(error) => Some(*error),
            Self::Refused(error) => Some(error),
        }
    }
}

impl From<CuError> for PoolError {
    fn from(error: CuError) -> Self {
        Self::Refused(error)
    }
}

type Result<T> = core::result::Result<T, PoolError>;

impl MemoryPool {
    /// A new pool on the device with this ordinal, of the process-wide driver.
    ///
    /// # Errors
    /// No driver, no such device, or a driver or device without pools.
    pub fn create(ordinal: i32) -> Result<Self> {
        Self::create_with(global()?, ordinal)
    }

    /// A new pool on the device with this ordinal.
    ///
    /// # Errors
    /// As for [`create`](Self::create).
    pub fn create_with(driver: &Driver, ordinal: i32) -> Result<Self> {
        watch_process_exit();
        driver.device_get(ordinal)?;
        // SAFETY: integers and a null pointer are valid with all bytes zero, and zero is what the
        // manual asks for in what is reserved.
        let mut properties: CUmemPoolProps = unsafe { mem::zeroed() };
        properties.allocType = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.handleTypes = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE;
        properties.location = CUmemLocation::device(ordinal);
        Ok(Self {
            driver: driver.clone(),
            handle: driver.mem_pool_create(&properties)?,
            owned: true,
        })
    }

    /// The pool that the device has from the start, of the process-wide driver.
    ///
    /// # Errors
    /// As for [`create`](Self::create).
    pub fn default_of(ordinal: i32) -> Result<Self> {
        Self::default_with(global()?, ordinal)
    }

    /// The pool that the device has from the start.
    ///
    /// # Errors
    /// As for [`create`](Self::create).
    pub fn default_with(driver: &Driver, ordinal: i32) -> Result<Self> {
        let device = driver.device_get(ordinal)?;
        Ok(Self {
            driver: driver.clone(),
            handle: driver.device_get_default_mem_pool(device)?,
            owned: false,
        })
    }

    /// The driver's handle. It is valid as long as this value lives.
    #[must_use]
    pub fn handle(&self) -> CUmemoryPool {
        self.handle
    }

    /// Bytes that the pool keeps when the host waits for the device.
    ///
    /// # Errors
    /// The driver's answer.
    pub fn release_threshold(&self) -> Result<u64> {
        self.get(CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
    }

    /// Sets how many bytes the pool keeps; `u64::MAX` keeps everything.
    ///
    /// # Errors
    /// The driver's answer.
    pub fn set_release_threshold(&self, bytes: u64) -> Result<()> {
        let attribute = CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        // SAFETY: this attribute is a 64-bit integer.
        unsafe { self.set(attribute, bytes) }
    }

    /// Whether memory released in one stream may be reused in another that an event orders after it.
    /// It may, unless this was set.
    ///
    /// # Errors
    /// The driver's answer.
    pub fn set_reuse_follow_event_dependencies(&self, allow: bool) -> Result<()> {
        self.set_switch(
            CUmemPool_attribute::CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES,
            allow,
        )
    }

    /// Whether memory released in one stream may be reused in another once the release has happened.
    /// It may, unless this was set.
    ///
    /// # Errors
    /// The driver's answer.
    pub fn set_reuse_opportunistic(&self, allow: bool) -> Result<()> {
        self.set_switch(
            CUmemPool_attribute::CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC,
            allow,
        )
    }

    /// Whether the driver may add an ordering between streams to reuse memory. It may, unless this
    /// was set.
    ///
    /// # Errors
    /// The driver's answer.
    pub fn set_reuse_internal_dependencies(&self, allow: bool) -> Result<()> {
        self.set_switch(
            CUmemPool_attribute::CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES,
            allow,
        )
    }

    /// Gives unused memory back to the system, but for `keep` bytes.
    ///
    /// # Errors
    /// The driver's answer.
    pub fn trim_to(&self, keep: usize) -> Result<()> {
        // SAFETY: the pool is live as long as this value is.
        unsafe { self.driver.mem_pool_trim_to(self.handle, keep) }?;
        Ok(())
    }

    /// What the driver says of the pool now.
    ///
    /// # Errors
    /// The driver's answer.
    pub fn statistics(&self) -> Result<PoolStatistics> {
        Ok(PoolStatistics {
            reserved: self.get(CUmemPool_attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)?,
            reserved_peak: self.get(CUmemPool_attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH)?,
            used: self.get(CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT)?,
            used_peak: self.get(CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH)?,
        })
    }

    /// Sets both peaks to what is current.
    ///
    /// # Errors
    /// The driver's answer.
    pub fn reset_peaks(&self) -> Result<()> {
        for attribute in [
            CUmemPool_attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH,
            CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH,
        ] {
            // SAFETY: these attributes are 64-bit integers, which can only be set to 0.
            unsafe { self.set(attribute, 0_u64) }?;
        }
        Ok(())
    }

    fn set_switch(&self, attribute: CUmemPool_attribute, allow: bool) -> Result<()> {
        // SAFETY: the callers name attributes that are integers.
        unsafe { self.set(attribute, c_int::from(allow)) }
    }

    /// # Safety
    /// `T` is the type that the manual names for the attribute.
    unsafe fn set<T>(&self, attribute: CUmemPool_attribute, mut value: T) -> Result<()> {
        let place = (&raw mut value).cast();
        // SAFETY: the pool is live as long as this value is, and the caller promises the type.
        unsafe {
            self.driver
                .mem_pool_set_attribute(self.handle, attribute, place)
        }?;
        Ok(())
    }

    /// Reads one of the attributes that are 64-bit integers.
    fn get(&self, attribute: CUmemPool_attribute) -> Result<u64> {
        let mut value = 0_u64;
        let place = (&raw mut value).cast();
        // SAFETY: the pool is live as long as this value is; the callers name attributes for which
        // there is room.
        unsafe {
            self.driver
                .mem_pool_get_attribute(self.handle, attribute, place)
        }?;
        Ok(value)
    }
}

fn global() -> Result<&'static Driver> {
    Driver::global().map_err(PoolError::Driver)
}

impl Drop for MemoryPool {
    fn drop(&mut self) {
        if self.owned && !self.driver.is_forked() && !process_is_exiting() {
            // SAFETY: the pool is ours, and with this value the last way to it goes. A refusal
            // means that the driver is going away, and the pool with it.
            let _ = unsafe { self.driver.mem_pool_destroy(self.handle) };
        }
    }
}

impl fmt::Debug for MemoryPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryPool")
            .field("handle", &self.handle)
            .field("owned", &self.owned)
            .finish_non_exhaustive()
    }
}
