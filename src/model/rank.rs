//! Which of the processes of a distributed job this one is.

use super::report::Report;

/// The variables in which a launcher gives a process its rank, its number on its machine, and how many there are.
type Launcher = [&'static str; 3];

/// The first that gives a rank counts. Slurm comes last, as a job's script is a process of Slurm's with rank 0, and `mpirun`
/// in it hands the script's variables on to all the processes that it starts.
const LAUNCHERS: [Launcher; 4] = [
    // torchrun.
    ["RANK", "LOCAL_RANK", "WORLD_SIZE"],
    // Open MPI.
    [
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_SIZE",
    ],
    // MPICH, and Intel MPI.
    ["PMI_RANK", "MPI_LOCALRANKID", "PMI_SIZE"],
    ["SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS"],
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
        let number = |name: &str| variable(name)?.parse::<u32>().ok();
        let rank = LAUNCHERS.iter().find_map(|[rank, ..]| number(rank))?;
        // The other numbers are those of a launcher that gave the same rank.
        let same = LAUNCHERS
            .iter()
            .filter(|[own, ..]| number(own) == Some(rank));
        Some(Self {
            rank,
            local_rank: same.clone().find_map(|[_, local, _]| number(local)),
            world_size: same
                .filter_map(|[.., size]| number(size))
                .find(|&size| size > rank),
        })
    }
}

impl Report {
    /// Says which place in its job the process of the report has.
    pub fn set_place(&mut self, place: Option<Rank>) {
        self.process.world_size = place.and_then(|it| it.world_size);
        self.set_rank(place.map(|it| it.rank));
    }
}

/// Numbers in order, those that follow one another as `0–7`.
pub fn runs(numbers: &[u32]) -> Vec<String> {
    let run = |run: &[u32]| match run {
        [first, .., last] if run.len() > 2 => vec![format!("{first}–{last}")],
        few => few.iter().map(u32::to_string).collect(),
    };
    let mut numbers = numbers.to_vec();
    numbers.dedup();
    let runs = numbers.chunk_by(|a, b| a.checked_add(1) == Some(*b));
    runs.flat_map(run).collect()
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

    #[test]
    fn a_job_script_of_slurm_gives_its_rank_to_all_that_mpirun_starts() {
        let script = [
            ("SLURM_PROCID", "0"),
            ("SLURM_LOCALID", "0"),
            ("SLURM_NTASKS", "2"),
        ];
        let started = [("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "2")];
        let expected = Rank {
            rank: 1,
            local_rank: None,
            world_size: Some(2),
        };
        assert_eq!(
            rank(&[script.as_slice(), &started].concat()),
            Some(expected)
        );
    }

    #[test]
    fn the_numbers_of_another_launcher_count_if_it_gave_the_same_rank() {
        let slurm = [
            ("SLURM_PROCID", "5"),
            ("SLURM_LOCALID", "1"),
            ("SLURM_NTASKS", "8"),
        ];
        let expected = |rank, local_rank, world_size| {
            Some(Rank {
                rank,
                local_rank,
                world_size,
            })
        };
        let with = |rank| [slurm.as_slice(), &[("RANK", rank)]].concat();
        assert_eq!(rank(&with("5")), expected(5, Some(1), Some(8)));
        assert_eq!(rank(&with("4")), expected(4, None, None));
        assert_eq!(
            rank(&[("RANK", "5"), ("WORLD_SIZE", "2")]),
            expected(5, None, None)
        );
    }

    #[test]
    fn ranks_that_follow_one_another_are_a_run() {
        assert_eq!(runs(&[0, 1, 2, 3, 7, 9, 10]), ["0–3", "7", "9", "10"]);
        assert!(runs(&[]).is_empty());
    }
}
