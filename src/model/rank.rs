//! Which of the processes of a distributed job this one is.

/// What torchrun, Slurm, Open MPI, and MPICH (with Intel MPI) set. The first that is there counts.
const RANK: [&str; 4] = ["RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"];
const LOCAL_RANK: [&str; 4] = [
    "LOCAL_RANK",
    "SLURM_LOCALID",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MPI_LOCALRANKID",
];
const WORLD_SIZE: [&str; 4] = [
    "WORLD_SIZE",
    "SLURM_NTASKS",
    "OMPI_COMM_WORLD_SIZE",
    "PMI_SIZE",
];

/// This process's place in a distributed job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "python",
    pyo3::pyclass(frozen, get_all, eq, hash, new = "from_fields", module = "cyclescope")
)]
#[non_exhaustive]
pub struct Rank {
    /// Its number in the job, from 0.
    pub rank: u32,
    /// Its number on its machine, if that is known.
    pub local_rank: Option<u32>,
    /// How many processes there are, if that is known.
    pub world_size: Option<u32>,
}

impl Rank {
    /// The rank that the launcher gave this process; `None` if it gave none.
    ///
    /// `variable` looks up a variable of the environment. The program's own process group, if it has
    /// made one, comes before this: see `Inspector::rank`.
    pub fn of_environment(variable: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let number = |names: [&str; 4]| {
            let set = |name| variable(name)?.parse().ok();
            names.into_iter().find_map(set)
        };
        Some(Self {
            rank: number(RANK)?,
            local_rank: number(LOCAL_RANK),
            world_size: number(WORLD_SIZE),
        })
    }
}

#[cfg(feature = "python")]
#[pyo3::pymethods]
impl Rank {
    /// For `pickle`.
    fn __getnewargs__(&self) -> (u32, Option<u32>, Option<u32>) {
        (self.rank, self.local_rank, self.world_size)
    }

    fn __repr__(&self) -> String {
        let number = |number: Option<u32>| number.map_or("None".to_owned(), |it| it.to_string());
        format!(
            "Rank(rank={}, local_rank={}, world_size={})",
            self.rank,
            number(self.local_rank),
            number(self.world_size)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank(variables: &[(&str, &str)]) -> Option<Rank> {
        Rank::of_environment(|name| {
            let set = variables.iter().find(|(known, _)| *known == name);
            set.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn the_first_launcher_that_gave_a_number_counts() {
        assert_eq!(rank(&[]), None);
        assert_eq!(rank(&[("RANK", "none")]), None);
        assert_eq!(rank(&[("WORLD_SIZE", "2")]), None);
        let slurm = [("SLURM_PROCID", "5"), ("SLURM_NTASKS", "6")];
        let expected = Rank {
            rank: 5,
            local_rank: None,
            world_size: Some(6),
        };
        assert_eq!(rank(&slurm), Some(expected));
        let both = [("SLURM_PROCID", "7"), ("RANK", "0"), ("LOCAL_RANK", "0")];
        let expected = Rank {
            rank: 0,
            local_rank: Some(0),
            world_size: None,
        };
        assert_eq!(rank(&both), Some(expected));
    }
}
