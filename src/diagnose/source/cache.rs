//! What is known of files from earlier reports: a watch may report after every collection.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, TryLockError};

/// A map of limited size that all threads share, and that none waits for.
///
/// It is as good as empty while another thread has it, also if that thread is gone since a fork.
pub struct Cache<K, V> {
    known: Mutex<BTreeMap<K, V>>,
    limit: usize,
}

impl<K: Ord, V: Clone> Cache<K, V> {
    /// An empty cache, which forgets everything once it has so many entries.
    pub const fn new(limit: usize) -> Self {
        Self {
            known: Mutex::new(BTreeMap::new()),
            limit,
        }
    }

    pub fn get(&self, key: &K) -> Option<V> {
        self.known()?.get(key).cloned()
    }

    pub fn insert(&self, key: K, value: V) {
        let Some(mut known) = self.known() else {
            return;
        };
        if known.len() >= self.limit {
            known.clear();
        }
        known.insert(key, value);
    }

    fn known(&self) -> Option<MutexGuard<'_, BTreeMap<K, V>>> {
        match self.known.try_lock() {
            Ok(known) => Some(known),
            Err(TryLockError::Poisoned(known)) => Some(known.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_forgets_everything_when_it_is_full() {
        let cache = Cache::new(2);
        cache.insert(1, "a");
        cache.insert(2, "b");
        assert_eq!(cache.get(&1), Some("a"));
        cache.insert(3, "c");
        assert_eq!((cache.get(&1), cache.get(&3)), (None, Some("c")));
    }

    #[test]
    fn nobody_waits_for_it() {
        let cache = Cache::new(2);
        cache.insert(1, "a");
        let taken = cache.known();
        assert_eq!(cache.get(&1), None);
        cache.insert(2, "b");
        drop(taken);
        assert_eq!((cache.get(&1), cache.get(&2)), (Some("a"), None));
    }
}
