# SPDX-License-Identifier: Apache-2.0
# Tests of several hosts source this file after test-lib.sh.

need_mpirun() {
	command -v mpirun >/dev/null || test_skip_all "mpirun is not installed"
	mpirun --version | grep -q "Open MPI" || test_skip_all "mpirun is not Open MPI's"
}
pd_pmix=$(ldd "$PD_BUILD/bin/pd-run" | grep -c libpmix)
[ "$pd_pmix" -gt 0 ] || test_skip_all "pd-run is built without PMIx"

# mpirun may run as root and with more ranks than processors, and has its files in a folder that the test
# removes.
OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
OMPI_MCA_orte_tmpdir_base=$test_directory OMPI_MCA_hwloc_base_binding_policy=none
export OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM OMPI_MCA_rmaps_base_oversubscribe \
	OMPI_MCA_orte_tmpdir_base OMPI_MCA_hwloc_base_binding_policy

# on_hosts ARGUMENT...: runs this test on the first of several hosts (contrib/hosts.sh), and ends.  It does
# nothing on a host.
on_hosts() {
	[ -z "${PD_NETNS-}" ] || return 0
	status=0
	sh "$PD_SOURCE/contrib/hosts.sh" "$@" sh "$PD_SOURCE/test/${0##*/}" 2>errors || status=$?
	[ $status -ne 77 ] || test_skip_all "$(sed -n 's/^hosts.sh: //p' errors)"
	cat errors >&2
	exit $status
}

# same_weights DIR OTHER: checks that all tensors of all steps are equal, bit by bit.
same_weights() {
	(cd "$1" && find . -name "*.safetensors") | sort >files
	[ -s files ]
	while read -r file; do
		cmp "$1/$file" "$2/$file" || return 1
	done <files
}

# tree PROCESS: prints the processes that descend from it.
tree() {
	for child in $(children "$1"); do
		echo "$child"
		tree "$child"
	done
}

# of NAME [N]: prints the processes of that name that descend from $run; of pd-worker that of rank N.
of() {
	for process in $(tree "$run"); do
		case $(tr '\0' ' ' <"/proc/$process/cmdline" 2>/dev/null)/ in
		"$1 ${2+$2 /}"* | *"/$1 ${2+$2 /}"*) echo "$process" ;;
		esac
	done
}

# begin FILE COMMAND...: starts the command in the background as $run, and waits until FILE has a report.
begin() {
	begin_file=$1
	shift
	rm -f "$begin_file"
	timeout 600 "$@" >"$begin_file" 2>err &
	run=$!
	until grep -qs '"progress"' "$begin_file"; do
		kill -0 $run 2>/dev/null || { cat err; return 1; }
		sleep 0.1
	done
}

# ended SECONDS STATUS: checks that $run ends within that limit, with that status; "" allows any.
ended() {
	since=$(date +%s)
	actual=0
	wait "$run" || actual=$?
	took=$(($(date +%s) - since))
	[ $took -le "$(within "$1")" ] || { echo "ended after $took s"; return 1; }
	[ -z "$2" ] || [ "$actual" -eq "$2" ] || { echo "status $actual"; cat err; return 1; }
}

# said SENTENCE: checks that the program says this, and no other sentence, on standard error.
said() {
	grep '^pd-[a-z]*: ' err >said || { cat err; return 1; }
	one_line said && grep -qF -- "$1" said || { cat said; return 1; }
}

# reports FILE: prints the reports without times, which differ in each run.  Checkpoints are left out, since
# they come when they are written.
reports() {
	jq -c 'select(.event != "checkpoint") | del(.samples_per_s, .elapsed_ns)' "$1"
}
