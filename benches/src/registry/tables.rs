//! One interface over all tables.

use std::collections::HashMap;
use std::ptr::{NonNull, without_provenance_mut};
use std::sync::Mutex;

use ptr_registry::{Registry, buckets_for};

use super::full_scan::FullScan;

/// What is stored with a pointer, where a table stores something.
pub type Value = (usize, usize);

/// A set of addresses that threads share.
pub trait Table: Send + Sync {
    /// Puts an address in that isn't there.
    fn register(&self, key: usize) -> bool;
    /// Takes an address out.
    fn unregister(&self, key: usize) -> bool;
    /// Looks an address up, and its value where there is one.
    fn find(&self, key: usize) -> Option<Value>;
}

/// The names of all tables, ours first.
pub const NAMES: [&str; 8] = [
    "ptr-registry",
    "ptr-registry+2w",
    "full-scan",
    "mutex",
    "parking_lot",
    "dashmap",
    "scc",
    "papaya",
];

/// Calls `$visit` with each table for the capacity.
#[macro_export]
macro_rules! for_each_table {
    ($capacity:expr, |$name:ident, $table:ident| $visit:expr) => {{
        use $crate::registry::tables as t;
        macro_rules! visit {
            ($n:expr, $t:expr) => {{
                let $name = t::NAMES[$n];
                let $table = $t;
                $visit
            }};
        }
        match $capacity {
            256 => {
                visit!(0, t::Plain::<37>::boxed(256));
                visit!(1, t::TwoWords::<37>::boxed(256));
            }
            4096 => {
                visit!(0, t::Plain::<586>::boxed(4096));
                visit!(1, t::TwoWords::<586>::boxed(4096));
            }
            65536 => {
                visit!(0, t::Plain::<9363>::boxed(65536));
                visit!(1, t::TwoWords::<9363>::boxed(65536));
            }
            other => unreachable!("no registry was built for a capacity of {other}"),
        }
        visit!(2, t::Scan::boxed($capacity));
        visit!(3, t::StdMutex::boxed($capacity));
        visit!(4, t::ParkingLot::boxed($capacity));
        visit!(5, t::Dash::boxed($capacity));
        visit!(6, t::Scc::boxed($capacity));
        visit!(7, t::Papaya::boxed($capacity));
    }};
}

fn ptr(key: usize) -> NonNull<u8> {
    NonNull::new(without_provenance_mut(key)).expect("no pattern contains null")
}

fn value(key: usize) -> Value {
    (key, !key)
}

macro_rules! table {
    (
        $(#[$about:meta])*
        $name:ident [$(const $buckets:ident)?] ($inner:ty),
        new($capacity:ident) = $new:expr,
        |$this:ident, $key:ident| $register:expr, $unregister:expr, $find:expr
    ) => {
        $(#[$about])*
        pub struct $name $(<const $buckets: usize>)? ($inner);

        impl $(<const $buckets: usize>)? $name $(<$buckets>)? {
            /// An empty table; boxed, because it may be large.
            #[must_use]
            pub fn boxed($capacity: usize) -> Box<Self> {
                Box::new(Self($new))
            }
        }

        impl $(<const $buckets: usize>)? Table for $name $(<$buckets>)? {
            #[inline]
            fn register(&self, $key: usize) -> bool {
                let $this = &self.0;
                $register
            }
            #[inline]
            fn unregister(&self, $key: usize) -> bool {
                let $this = &self.0;
                $unregister
            }
            #[inline]
            fn find(&self, $key: usize) -> Option<Value> {
                let $this = &self.0;
                $find
            }
        }

        impl $(<const $buckets: usize>)? std::fmt::Debug for $name $(<$buckets>)? {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(stringify!($name))
            }
        }
    };
}

table! {
    /// The registry without values.
    Plain [const BUCKETS] (Registry<BUCKETS>),
    new(capacity) = {
        assert_eq!(BUCKETS, buckets_for(capacity));
        Registry::with_capacity(capacity)
    },
    |this, key|
    this.register(ptr(key), ()).is_ok(),
    this.unregister(ptr(key)).is_some(),
    this.contains(ptr(key)).then_some((0, 0))
}

table! {
    /// The registry with two words for each pointer.
    TwoWords [const BUCKETS] (Registry<BUCKETS, Value>),
    new(capacity) = Registry::with_capacity(capacity),
    |this, key|
    this.register(ptr(key), value(key)).is_ok(),
    this.unregister(ptr(key)).is_some(),
    this.get(ptr(key))
}

table! {
    /// The table that the registry replaces.
    Scan [] (FullScan),
    new(capacity) = FullScan::new(capacity),
    |this, key|
    this.register(ptr(key).as_ptr()),
    this.unregister(ptr(key).as_ptr()),
    this.contains(ptr(key).as_ptr()).then_some((0, 0))
}

table! {
    /// `std::sync::Mutex<HashMap>`.
    StdMutex [] (Mutex<HashMap<usize, Value>>),
    new(capacity) = Mutex::new(HashMap::with_capacity(capacity)),
    |this, key|
    this.lock().expect("nobody panics").insert(key, value(key)).is_none(),
    this.lock().expect("nobody panics").remove(&key).is_some(),
    this.lock().expect("nobody panics").get(&key).copied()
}

table! {
    /// The same with parking_lot's lock.
    ParkingLot [] (parking_lot::Mutex<HashMap<usize, Value>>),
    new(capacity) = parking_lot::Mutex::new(HashMap::with_capacity(capacity)),
    |this, key|
    this.lock().insert(key, value(key)).is_none(),
    this.lock().remove(&key).is_some(),
    this.lock().get(&key).copied()
}

table! {
    /// A sharded map.
    Dash [] (dashmap::DashMap<usize, Value>),
    new(capacity) = dashmap::DashMap::with_capacity(capacity),
    |this, key|
    this.insert(key, value(key)).is_none(),
    this.remove(&key).is_some(),
    this.get(&key).map(|found| *found)
}

table! {
    /// A map with locks for buckets.
    Scc [] (scc::HashMap<usize, Value>),
    new(capacity) = scc::HashMap::with_capacity(capacity),
    |this, key|
    this.insert_sync(key, value(key)).is_ok(),
    this.remove_sync(&key).is_some(),
    this.read_sync(&key, |_, found| *found)
}

table! {
    /// A lock-free map with memory reclamation.
    Papaya [] (papaya::HashMap<usize, Value>),
    new(capacity) = papaya::HashMap::with_capacity(capacity),
    |this, key|
    this.pin().insert(key, value(key)).is_none(),
    this.pin().remove(&key).is_some(),
    this.pin().get(&key).copied()
}
