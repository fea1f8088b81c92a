//! Calls that fail on purpose.

use cumem_sys::CUresult;

/// Makes calls of one entry point fail: which of them, and with which code.
///
/// The call then does nothing but answer the code. Calls are counted from the moment the fault is
/// injected.
#[derive(Clone, Debug)]
pub struct Fault {
    call: &'static str,
    code: CUresult,
    when: When,
}

#[derive(Clone, Debug)]
enum When {
    /// After so many calls went through, the next so many fail.
    Run { passing: u64, failing: u64 },
    /// Each call fails with this probability out of 2^32, by a generator with this state.
    Chance { threshold: u64, state: u64 },
}

impl Fault {
    /// The next call fails.
    #[must_use]
    pub fn once(call: &'static str, code: CUresult) -> Self {
        Self::times(call, 1, code)
    }

    /// The next `count` calls fail.
    #[must_use]
    pub fn times(call: &'static str, count: u64, code: CUresult) -> Self {
        Self::run(call, 0, count, code)
    }

    /// The `n`-th call from now fails, counted from 1.
    ///
    /// # Panics
    /// If `n` is 0.
    #[must_use]
    pub fn nth(call: &'static str, n: u64, code: CUresult) -> Self {
        assert!(n > 0, "calls are counted from 1");
        Self::run(call, n - 1, 1, code)
    }

    /// Every call fails.
    #[must_use]
    pub fn always(call: &'static str, code: CUresult) -> Self {
        Self::run(call, 0, u64::MAX, code)
    }

    /// Each call fails with a probability from 0 to 1. The same seed gives the same sequence of
    /// failures; which thread's call meets which, the threads decide.
    ///
    /// # Panics
    /// If the probability is not from 0 to 1.
    #[must_use]
    pub fn probability(call: &'static str, probability: f64, seed: u64, code: CUresult) -> Self {
        assert!((0.0..=1.0).contains(&probability), "not a probability");
        let threshold = (probability * 2_f64.powi(32)) as u64;
        Self {
            call,
            code,
            when: When::Chance {
                threshold,
                state: seed,
            },
        }
    }

    fn run(call: &'static str, passing: u64, failing: u64, code: CUresult) -> Self {
        Self {
            call,
            code,
            when: When::Run { passing, failing },
        }
    }

    /// Whether this call of `name` fails, and with what; counts it.
    pub(crate) fn strikes(&mut self, name: &str) -> Option<CUresult> {
        if name != self.call {
            return None;
        }
        let fails = match &mut self.when {
            When::Run {
                passing: 0,
                failing,
            } => {
                let fails = *failing > 0;
                *failing = failing.saturating_sub(u64::from(*failing != u64::MAX));
                fails
            }
            When::Run { passing, .. } => {
                *passing -= 1;
                false
            }
            When::Chance { threshold, state } => next_random(state) >> 32 < *threshold,
        };
        fails.then_some(self.code)
    }

    /// Whether it has nothing left to do.
    pub(crate) fn is_spent(&self) -> bool {
        matches!(self.when, When::Run { failing: 0, .. })
    }
}

/// SplitMix64 (Steele, Lea and Flood, 2014): enough for choosing which calls fail.
fn next_random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: CUresult = CUresult::CUDA_ERROR_UNKNOWN;

    fn struck(fault: &mut Fault, calls: usize) -> Vec<bool> {
        (0..calls).map(|_| fault.strikes("f").is_some()).collect()
    }

    #[test]
    fn the_nth_call_fails_and_no_other() {
        let mut fault = Fault::nth("f", 3, CODE);
        assert_eq!(fault.strikes("g"), None);
        assert_eq!(struck(&mut fault, 5), [false, false, true, false, false]);
        assert!(fault.is_spent());
    }

    #[test]
    fn always_means_always() {
        let mut fault = Fault::always("f", CODE);
        assert_eq!(struck(&mut fault, 3), [true; 3]);
        assert!(!fault.is_spent());
    }

    #[test]
    fn a_probability_is_kept_and_its_seed_repeats() {
        let mut fault = Fault::probability("f", 0.25, 7, CODE);
        let first = struck(&mut fault, 4000);
        let failures = first.iter().filter(|failed| **failed).count();
        assert!((800..1200).contains(&failures), "{failures} of 4000");
        let mut again = Fault::probability("f", 0.25, 7, CODE);
        assert_eq!(struck(&mut again, 4000), first);
        assert_eq!(
            struck(&mut Fault::probability("f", 1.0, 7, CODE), 9),
            [true; 9]
        );
        assert_eq!(
            struck(&mut Fault::probability("f", 0.0, 7, CODE), 9),
            [false; 9]
        );
    }
}
