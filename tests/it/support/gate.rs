//! A gate in the way of a script, opened by the test.

use std::sync::Arc;

use tokio::sync::Semaphore;

#[derive(Clone, Debug)]
pub(crate) struct Gate(Arc<Semaphore>);

impl Gate {
    pub(crate) fn shut() -> Self {
        Self(Arc::new(Semaphore::new(0)))
    }

    /// Lets one script pass, once: the one at the gate, or the next to come.
    pub(crate) fn let_one_pass(&self) {
        self.0.add_permits(1);
    }

    /// Lets everybody pass from now on.
    pub(crate) fn open(&self) {
        self.0.close();
    }

    pub(crate) async fn pass(&self) {
        // A closed semaphore is an open gate.
        if let Ok(permit) = self.0.acquire().await {
            permit.forget();
        }
    }
}
