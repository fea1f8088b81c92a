//! What is measured: one interface over this crate's pools, the driver's pool, and cudarc.

use std::ffi::c_void;
use std::panic::Location;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaSlice, CudaStream};
use cumem_backend::MemoryBackend;
use cumem_device::DeviceBackend;
use cumem_pool::{DriverStreams, OrderedPool, Pool, PoolConfig};
use cumem_sys::{CUcontext, CUmemPool_attribute, CUmemoryPool, CUstream, CUstream_flags, Driver};

use crate::Outcome;

/// Something that hands out memory. A block is a number that is not 0.
pub(crate) trait Subject: Sync {
    /// What one thread works with.
    type Worker;

    fn name(&self) -> &'static str;

    /// Made on the thread that uses it.
    fn worker(&self) -> Outcome<Self::Worker>;

    fn take(&self, worker: &Self::Worker, size: usize) -> Outcome<u64>;

    /// The block came from `take`, and nothing uses it.
    fn give(&self, worker: &Self::Worker, block: u64) -> Outcome<()>;

    /// The most bytes that were held at once since the last call, if that is known; gives
    /// everything unused back.
    fn peak_bytes(&self) -> Outcome<Option<usize>>;
}

/// Has a context current on this thread, and one stream.
pub(crate) struct OwnStream {
    driver: Driver,
    pub(crate) stream: CUstream,
}

impl OwnStream {
    pub(crate) fn new(driver: &Driver) -> Outcome<Self> {
        let context = driver.device_primary_ctx_retain(driver.device_get(0)?)?;
        // SAFETY: the context was retained, and never released.
        unsafe { driver.ctx_push_current(context) }?;
        let stream = driver.stream_create(CUstream_flags::CU_STREAM_NON_BLOCKING)?;
        Ok(Self {
            driver: driver.clone(),
            stream,
        })
    }
}

impl Drop for OwnStream {
    fn drop(&mut self) {
        // The stream lives on until the process ends: a pool that was given blocks on it may still
        // mark it, and a real driver crashes when a stream is marked that was destroyed.
        let _ = self.driver.ctx_pop_current();
    }
}

fn pool(driver: &Driver) -> Pool<Box<DeviceBackend>> {
    Pool::new(
        Box::new(DeviceBackend::new().with_driver(driver.clone())),
        PoolConfig::new(60 << 30),
    )
}

fn pointer(block: u64) -> Outcome<NonNull<u8>> {
    let pointer = cumem_backend::from_device_ptr(block);
    NonNull::new(pointer).ok_or_else(|| "a block is never 0".into())
}

/// Our pool, where whoever releases guarantees that no work uses the block.
pub(crate) struct Plain {
    pool: Pool<Box<DeviceBackend>>,
}

impl Plain {
    pub(crate) fn new(driver: &Driver) -> Self {
        Self { pool: pool(driver) }
    }
}

impl Subject for Plain {
    type Worker = ();

    fn name(&self) -> &'static str {
        "cumem-pool"
    }

    fn worker(&self) -> Outcome<()> {
        Ok(())
    }

    #[inline]
    fn take(&self, (): &(), size: usize) -> Outcome<u64> {
        let block = self.pool.acquire(size, 256, Location::caller())?;
        Ok(cumem_backend::to_device_ptr(block.as_ptr()))
    }

    #[inline]
    fn give(&self, (): &(), block: u64) -> Outcome<()> {
        // SAFETY: nothing uses the block.
        unsafe { self.pool.release(pointer(block)?) }?;
        Ok(())
    }

    fn peak_bytes(&self) -> Outcome<Option<usize>> {
        let peak = self.pool.pool_statistics().peak_reserved_bytes;
        self.pool.trim();
        Ok(Some(peak))
    }
}

/// Our pool in stream order.
pub(crate) struct Ordered {
    pool: OrderedPool<Box<DeviceBackend>, DriverStreams>,
    driver: Driver,
}

impl Ordered {
    pub(crate) fn new(driver: &Driver) -> Outcome<Self> {
        let context = driver.device_primary_ctx_retain(driver.device_get(0)?)?;
        // SAFETY: the context was retained, and never released.
        let order = unsafe { DriverStreams::new(driver.clone(), context) };
        Ok(Self {
            pool: OrderedPool::new(pool(driver), order, 256),
            driver: driver.clone(),
        })
    }
}

impl Subject for Ordered {
    type Worker = OwnStream;

    fn name(&self) -> &'static str {
        "cumem-pool on streams"
    }

    fn worker(&self) -> Outcome<OwnStream> {
        OwnStream::new(&self.driver)
    }

    #[inline]
    fn take(&self, worker: &OwnStream, size: usize) -> Outcome<u64> {
        let block = self.pool.acquire_on(size, 256, worker.stream)?;
        Ok(cumem_backend::to_device_ptr(block.as_ptr()))
    }

    #[inline]
    fn give(&self, worker: &OwnStream, block: u64) -> Outcome<()> {
        // SAFETY: no work uses the block; the stream is never destroyed.
        unsafe { self.pool.release_on(pointer(block)?, worker.stream) }?;
        Ok(())
    }

    fn peak_bytes(&self) -> Outcome<Option<usize>> {
        let peak = self.pool.pool().pool_statistics().peak_reserved_bytes;
        self.pool.poll();
        self.pool.pool().trim();
        Ok(Some(peak))
    }
}

/// `cuMemAllocAsync` and `cuMemFreeAsync`, with a pool that keeps what it has.
pub(crate) struct DriverPool {
    driver: Driver,
    pool: CUmemoryPool,
}

// SAFETY: a handle, which any thread may use.
unsafe impl Sync for DriverPool {}

impl DriverPool {
    pub(crate) fn new(driver: &Driver) -> Outcome<Self> {
        let pool = driver.device_get_default_mem_pool(driver.device_get(0)?)?;
        let this = Self {
            driver: driver.clone(),
            pool,
        };
        this.set(
            CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
            u64::MAX,
        )?;
        Ok(this)
    }

    fn set(&self, attribute: CUmemPool_attribute, mut value: u64) -> Outcome<()> {
        let value: *mut c_void = ptr::from_mut(&mut value).cast();
        // SAFETY: the pool is the device's own; both attributes in use are 64 bits wide.
        unsafe {
            self.driver
                .mem_pool_set_attribute(self.pool, attribute, value)
        }?;
        Ok(())
    }
}

/// The most that the device's default pool held since the last call, after which it is emptied.
fn default_pool_peak(pool: &DriverPool) -> Outcome<Option<usize>> {
    let high = CUmemPool_attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH;
    let mut peak = 0_u64;
    // SAFETY: as in `set`; the attribute is 64 bits wide.
    unsafe {
        pool.driver
            .mem_pool_get_attribute(pool.pool, high, ptr::from_mut(&mut peak).cast())
    }?;
    // SAFETY: the pool is the device's own.
    unsafe { pool.driver.mem_pool_trim_to(pool.pool, 0) }?;
    pool.set(high, 0)?;
    Ok(Some(peak as usize))
}

impl Subject for DriverPool {
    type Worker = OwnStream;

    fn name(&self) -> &'static str {
        "cuMemAllocAsync"
    }

    fn worker(&self) -> Outcome<OwnStream> {
        OwnStream::new(&self.driver)
    }

    fn take(&self, worker: &OwnStream, size: usize) -> Outcome<u64> {
        // SAFETY: the stream is live.
        Ok(unsafe { self.driver.mem_alloc_async(size, worker.stream) }?)
    }

    fn give(&self, worker: &OwnStream, block: u64) -> Outcome<()> {
        // SAFETY: the block is live, the stream too, and no work uses the block.
        unsafe { self.driver.mem_free_async(block, worker.stream) }?;
        Ok(())
    }

    fn peak_bytes(&self) -> Outcome<Option<usize>> {
        default_pool_peak(self)
    }
}

/// cudarc's slices, each thread with a stream of its own.
pub(crate) struct Cudarc {
    context: Arc<CudaContext>,
    pool: DriverPool,
}

impl Cudarc {
    pub(crate) fn new(driver: &Driver) -> Outcome<Self> {
        Ok(Self {
            context: CudaContext::new(0)?,
            pool: DriverPool::new(driver)?,
        })
    }
}

impl Subject for Cudarc {
    type Worker = Arc<CudaStream>;

    fn name(&self) -> &'static str {
        "cudarc"
    }

    fn worker(&self) -> Outcome<Arc<CudaStream>> {
        Ok(self.context.new_stream()?)
    }

    fn take(&self, worker: &Arc<CudaStream>, size: usize) -> Outcome<u64> {
        // SAFETY: nothing reads the memory.
        let slice: CudaSlice<u8> = unsafe { worker.alloc(size) }?;
        Ok(Box::into_raw(Box::new(slice)).expose_provenance() as u64)
    }

    fn give(&self, _: &Arc<CudaStream>, block: u64) -> Outcome<()> {
        let slice: *mut CudaSlice<u8> = ptr::with_exposed_provenance_mut(block as usize);
        // SAFETY: `take` made it from a box, and this is its only way back.
        drop(unsafe { Box::from_raw(slice) });
        Ok(())
    }

    fn peak_bytes(&self) -> Outcome<Option<usize>> {
        default_pool_peak(&self.pool)
    }
}

/// A context that is current on this thread as long as this lives.
pub(crate) struct Current {
    driver: Driver,
}

impl Current {
    pub(crate) fn new(driver: &Driver) -> Outcome<Self> {
        let context: CUcontext = driver.device_primary_ctx_retain(driver.device_get(0)?)?;
        // SAFETY: the context was retained, and never released.
        unsafe { driver.ctx_push_current(context) }?;
        Ok(Self {
            driver: driver.clone(),
        })
    }
}

impl Drop for Current {
    fn drop(&mut self) {
        let _ = self.driver.ctx_pop_current();
    }
}
