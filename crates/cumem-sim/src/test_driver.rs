//! Running the same tests on a simulated or on a real driver.

use cumem_sys::{Driver, LoadError};

use crate::{Sim, SimBuilder};

/// The environment variable that [`TestDriver::new`] reads.
pub const TEST_DRIVER_VARIABLE: &str = "CUMEM_TEST_DRIVER";

/// The driver that a test was asked to use, with the simulation behind it if it is simulated.
#[derive(Debug)]
pub struct TestDriver {
    /// The driver.
    pub driver: Driver,
    /// Its books and switches; `None` for a real driver.
    pub sim: Option<Sim>,
}

impl TestDriver {
    /// The driver that `CUMEM_TEST_DRIVER` names: `sim`, which is also meant if it isn't set, as
    /// `builder` describes it; `real`, the one of this machine; or else a library's path.
    ///
    /// # Errors
    /// That driver's loading.
    pub fn new(builder: SimBuilder) -> Result<Self, LoadError> {
        let wanted = std::env::var(TEST_DRIVER_VARIABLE).unwrap_or_default();
        match wanted.as_str() {
            "" | "sim" => {
                let sim = builder.build();
                Ok(Self {
                    driver: sim.driver()?,
                    sim: Some(sim),
                })
            }
            "real" => Ok(Self {
                driver: Driver::load()?,
                sim: None,
            }),
            path => Ok(Self {
                driver: Driver::load_from(path)?,
                sim: None,
            }),
        }
    }

    /// Whether nothing is live and nothing was freed wrongly, as far as the driver keeps books: a
    /// real one doesn't, and then this is `true`.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.sim.as_ref().is_none_or(|sim| sim.books().are_clean())
    }
}
