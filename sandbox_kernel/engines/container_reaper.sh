# Waits in the place of container_reaper.py, and becomes it once there is something to do: a shell needs a tenth of the
# memory, and of the time to start. It reads the same lines. "$@" starts that program, which is given what still counts
# of them, and reads on where this one stopped: a shell takes no byte of a pipe behind the line that it reads.
set -f
words=
while IFS= read -r line; do
	rest= count=0
	for word in $words; do
		[ "${word#?}" = "${line#?}" ] || rest="$rest $word" count=$((count + 1))
	done
	words=$rest
	case $line in
	-*) continue ;;
	esac
	words="$words $line"
	case $line in
	!*) break ;;
	esac
	[ "$count" -lt 16 ] || break # so many are the program's: what a shell does takes longer with each
done
[ -z "$words" ] || exec "$@" $words
