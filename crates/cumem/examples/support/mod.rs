//! The driver that an example runs on: the machine's own, or a simulated one where there is none.

use cumem::sys::{Driver, LoadError};

/// Where there is no driver, says so, and simulates one.
pub(crate) fn driver() -> Result<Driver, LoadError> {
    match Driver::load() {
        Ok(driver) => Ok(driver),
        Err(error) => {
            println!("on a simulated driver, since there is no real one:\n  {error}");
            cumem_sim::Sim::new().driver()
        }
    }
}
