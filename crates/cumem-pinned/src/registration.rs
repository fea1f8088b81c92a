//! Pinning memory that exists already.

use core::error::Error;
use core::fmt;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};

use cumem_backend::{DeviceContext, process_is_exiting};
use cumem_sys::{
    CU_MEMHOSTREGISTER_DEVICEMAP, CU_MEMHOSTREGISTER_PORTABLE, CUdeviceptr, CUresult, CuError,
    Driver, LoadError,
};

/// Memory of the program's own that is page-locked as long as this value lives: the contents of a
/// `Vec`, a slice, a memory map (`cuMemHostRegister`, CUDA Driver API, Memory Management).
///
/// It borrows the memory, so that it can't be freed, moved or unmapped while it is pinned, and
/// derefs to it. The driver locks whole pages: two registrations that share a page overlap.
/// Page-locking costs milliseconds. Registering no elements calls no driver.
///
/// Leaking the value (`mem::forget`) leaves the pages locked until the process ends, and the driver
/// will refuse to lock them again under whatever is allocated there later.
///
/// ```no_run
/// use cumem_pinned::Registration;
///
/// let mut samples = vec![0_f32; 1 << 20];
/// let mut pinned = Registration::new(&mut samples)?;
/// pinned[0] = 1.0; // ordinary memory to the host, fast to copy for the device
/// pinned.try_release().map_err(|(_, error)| error)?;
/// # Ok::<(), cumem_pinned::RegisterError>(())
/// ```
pub struct Registration<'a, T> {
    memory: &'a mut [T],
    /// What to unregister with; `None` for no elements.
    context: Option<DeviceContext>,
}

/// Why memory was not pinned, or not unpinned.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum RegisterError {
    /// There is no usable driver.
    Driver(&'static LoadError),
    /// Some page of the range is page-locked already: by another registration, by this program or
    /// by another library, or because the driver allocated it pinned.
    Overlap {
        /// The range's first address.
        address: usize,
        /// Its bytes.
        bytes: usize,
        /// The driver's answer.
        error: CuError,
    },
    /// The driver refused for another reason.
    Refused {
        /// The range's first address.
        address: usize,
        /// Its bytes.
        bytes: usize,
        /// The driver's answer.
        error: CuError,
    },
    /// The process is exiting, or a forked child: the driver was not called.
    LeftToProcessExit,
}

impl fmt::Display for RegisterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Driver(error) => write!(f, "no usable CUDA driver: {error}"),
            Self::Overlap { address, bytes, .. } => write!(
                f,
                "the {bytes} bytes at {address:#x} share a page with memory that is page-locked \
                 already, by this program or another library in it; register the whole range once"
            ),
            Self::Refused {
                address,
                bytes,
                error,
            } => write!(
                f,
                "the driver did not change the page lock of {bytes} bytes at {address:#x}: {error}"
            ),
            Self::LeftToProcessExit => {
                f.write_str("the process is exiting, or is a forked child; the pages end with it")
            }
        }
    }
}

impl Error for RegisterError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Driver(error) => Some(*error),
            Self::Overlap { error, .. } | Self::Refused { error, .. } => Some(error),
            Self::LeftToProcessExit => None,
        }
    }
}

impl<'a, T> Registration<'a, T> {
    /// Pins memory, through the primary context of device 0 of the process-wide driver. It is then
    /// page-locked for every context and every device.
    ///
    /// # Errors
    /// [`RegisterError::Overlap`] for pages that are locked already; no driver; the driver's answer.
    pub fn new(memory: &'a mut [T]) -> Result<Self, RegisterError> {
        if size_of_val(memory) == 0 {
            return Ok(Self {
                memory,
                context: None,
            });
        }
        Self::new_with(Driver::global().map_err(RegisterError::Driver)?, 0, memory)
    }

    /// Pins memory through the primary context of one device of `driver`.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub fn new_with(
        driver: &Driver,
        ordinal: i32,
        memory: &'a mut [T],
    ) -> Result<Self, RegisterError> {
        let bytes = size_of_val(memory);
        if bytes == 0 {
            return Ok(Self {
                memory,
                context: None,
            });
        }
        let pointer = memory.as_mut_ptr();
        let refused = |error| refusal(pointer.addr(), bytes, error);
        let context = DeviceContext::retain(driver, ordinal).map_err(refused)?;
        {
            let _entered = context.enter().map_err(refused)?;
            let flags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
            // SAFETY: the range is borrowed, so mapped, until this value unregisters it.
            unsafe { driver.mem_host_register(pointer.cast(), bytes, flags) }.map_err(refused)?;
        }
        Ok(Self {
            memory,
            context: Some(context),
        })
    }

    /// The address under which kernels use the memory; `None` for no elements.
    ///
    /// # Errors
    /// The driver's answer.
    pub fn device_address(&mut self) -> Result<Option<CUdeviceptr>, CuError> {
        let Some(context) = &self.context else {
            return Ok(None);
        };
        let _entered = context.enter()?;
        context
            .driver()
            .mem_host_get_device_pointer(self.memory.as_mut_ptr().cast())
            .map(Some)
    }

    /// Unpins now, and says how that went. Nothing on the device may be using the memory.
    ///
    /// # Errors
    /// The registration, to try again with, and why the driver refused.
    pub fn try_release(self) -> Result<(), (Self, RegisterError)> {
        let mut this = ManuallyDrop::new(self);
        match this.unregister() {
            Ok(()) => {
                // The reference to the context goes back; the memory is the caller's again.
                this.context = None;
                Ok(())
            }
            Err(error) => Err((ManuallyDrop::into_inner(this), error)),
        }
    }

    fn unregister(&mut self) -> Result<(), RegisterError> {
        let Some(context) = &self.context else {
            return Ok(());
        };
        if process_is_exiting() || context.driver().is_forked() {
            return Err(RegisterError::LeftToProcessExit);
        }
        let bytes = size_of_val(self.memory);
        let pointer = self.memory.as_mut_ptr();
        let refused = |error| refusal(pointer.addr(), bytes, error);
        let _entered = context.enter().map_err(refused)?;
        // SAFETY: this value registered the range, which starts here; the borrow of it ends, and
        // work under way on the device that uses it is the caller's to have waited for.
        unsafe { context.driver().mem_host_unregister(pointer.cast()) }.map_err(refused)
    }
}

fn refusal(address: usize, bytes: usize, error: CuError) -> RegisterError {
    if error.code() == CUresult::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED {
        RegisterError::Overlap {
            address,
            bytes,
            error,
        }
    } else {
        RegisterError::Refused {
            address,
            bytes,
            error,
        }
    }
}

impl<T> Drop for Registration<'_, T> {
    fn drop(&mut self) {
        // A refusal leaves the pages locked; `try_release` shows it to those who want to know.
        let _ = self.unregister();
    }
}

impl<T> Deref for Registration<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        self.memory
    }
}

impl<T> DerefMut for Registration<'_, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        self.memory
    }
}

impl<T> fmt::Debug for Registration<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registration")
            .field("ptr", &self.memory.as_ptr())
            .field("len", &self.memory.len())
            .field("pinned", &self.context.is_some())
            .finish()
    }
}
