//! From a library to an initialised driver: the checks, in order.

use core::ffi::c_int;

use crate::bindings::CUresult;
use crate::error::CuError;
use crate::fork;
use crate::library::Library;
use crate::load_error::{LoadError, OLDEST_DRIVER};
use crate::table::Table;

/// A library whose symbols were looked up and found to be those of a driver that this crate works
/// with. Nothing but `cuDriverGetVersion` was called.
pub(crate) struct Examined {
    pub(crate) table: Table,
    pub(crate) library: String,
}

impl Examined {
    pub(crate) fn of(library: Library) -> Result<Self, LoadError> {
        // SAFETY: the library is one that the loader's path, or the user, says is the CUDA driver: it
        // exports the driver's functions under the driver's names.
        let table = unsafe { Table::resolve(&library) };
        Self::new(table, library.file)
    }

    pub(crate) fn new(mut table: Table, library: String) -> Result<Self, LoadError> {
        let version = match ask_version(&mut table) {
            Err(error) if error.code() == CUresult::CUDA_ERROR_STUB_LIBRARY => {
                return Err(LoadError::stub(library));
            }
            // In a forked child even this can fail; `cuInit` will say why.
            answer => answer.ok(),
        };
        if let Some(version) = version.filter(|version| *version < OLDEST_DRIVER) {
            return Err(LoadError::TooOld { library, version });
        }
        if let Some(symbol) = table.first_missing() {
            return Err(LoadError::MissingSymbol {
                library,
                symbol,
                version,
            });
        }
        Ok(Self { table, library })
    }

    /// Calls `cuInit`.
    pub(crate) fn init(self) -> Result<Self, LoadError> {
        let Self { mut table, library } = self;
        fork::watch();
        // SAFETY: any thread may initialise the driver, any number of times; flags must be 0.
        let answer = unsafe { table.cuInit(0) };
        // Known before `cuInit` wherever a driver can answer it then.
        let known = match table.version() {
            0 => ask_version(&mut table),
            version => Ok(version),
        };
        if let Err(error) = answer {
            return Err(LoadError::from_init(library, known.ok(), error));
        }
        match known {
            Ok(version) if version < OLDEST_DRIVER => Err(LoadError::TooOld { library, version }),
            Ok(_) => Ok(Self { table, library }),
            Err(error) => Err(LoadError::Init {
                library,
                version: None,
                error,
            }),
        }
    }
}

fn ask_version(table: &mut Table) -> Result<c_int, CuError> {
    let mut version: c_int = 0;
    // SAFETY: the call writes one integer, and is allowed before `cuInit`.
    unsafe { table.cuDriverGetVersion(&mut version) }?;
    table.set_version(version);
    Ok(version)
}
