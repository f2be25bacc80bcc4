# SPDX-License-Identifier: Apache-2.0
# bash completion for the ckpt commands: one function, a list of options a command, steps after STORE@.

_ckpt_options() {
  local common='--format= --json -0 --null -q --quiet -v --verbose --color= --progress --no-progress --log-json
    -h --help -V --version'
  case $1 in
    ckpt-save)
      echo "$common -C --directory= --files-from= --name= --owner --allow-malformed --meta= --rank= --world-size=
        --attempt= --resumed-from= --replace --base= --encode= --no-check --no-create --read-back --umask= --detach
        --consume --spool= --to= --durable --max-staged= --when-full= --timeout= -j --jobs= --metrics-file=" ;;
    ckpt-bench)
      echo "$common --size= --tensors= --ranks= --seed= --encode= --steps= --saves= --step-time= --threads= --update=
        --mtbf= --spool= --path= --plot= --keep -j --jobs=" ;;
    ckpt-run)
      echo "$common --store= --nproc= --nproc-per-node= --multiple-of= --health-check= --health-interval= --run-id= --nnodes=
        --node-rank= --master= --join-timeout= --cluster= --node= --node-address= --lease=
        --verify= --from= -e --rsh= --restore-to= --store-timeout= --heartbeat= --start-timeout= --stop-signal=
        --max-restarts= --max-retries-per-step= --backoff= --interval= --preempt-signal= --grace= --log-dir= --log-size=
        --log-files= -j --jobs= --metrics-file=" ;;
    ckpt-wait)
      echo "$common --timeout= --spool= -j --jobs=" ;;
    ckpt-serve)
      echo "$common --spool= --from= --until-idle --replica= -e --rsh= --prune= --scrub= --compress -j --jobs= --metrics-file=" ;;
    ckpt-restore)
      echo "$common --file= --rank= --fallback --allow-lossy --from= -e --rsh= --tensor= --full --as= --strip-prefix= -o --output= --by-rank
        -f --force -j --jobs=" ;;
    ckpt-verify)
      echo "$common --quick --deep --finite --sample= --budget= --bwlimit= --repair --from= -e --rsh= --state= -j --jobs= --metrics-file=" ;;
    ckpt-diff)
      echo "$common --tolerance= --whole -s --summarize --depth= --sort= --top= --plot= -j --jobs=" ;;
    ckpt-ls)
      echo "$common --pending --spool= --retired --tensors --tensor= --stats --sums --get= --exists -j --jobs=" ;;
    ckpt-compress)
      echo "$common --encode= --level= --max-chain= --base= --newest-full --across-ranks --rebase
        --drop= --quantize= --sparsify= --older-than= -n --dry-run -j --jobs= --metrics-file=" ;;
    ckpt-prune)
      echo "$common --keep-last= --keep-every= --keep-within= --keep-hourly= --keep-daily= --keep-weekly= --keep-best=
        --keep= --remove= --pin= --unpin= --drop-after= --verified -n --dry-run -j --jobs= --metrics-file=" ;;
    ckpt-sync)
      echo "$common -P --replace --delete --gather --min-copies= --have= --watch --until-pid= -e --rsh= -n --dry-run
        -i --itemize-changes --stats --bwlimit= --timeout= --server -j --jobs=" ;;
  esac
}

# The value of an option; false if it has no known ones.
_ckpt_value() {
  case $1 in
    --format) mapfile -t COMPREPLY < <(compgen -W 'human tsv json' -- "$2") ;;
    --color) mapfile -t COMPREPLY < <(compgen -W 'auto always never' -- "$2") ;;
    --base) mapfile -t COMPREPLY < <(compgen -W 'auto none' -- "$2") ;;
    --encode) mapfile -t COMPREPLY < <(compgen -W 'raw fast best' -- "$2") ;;
    --as) mapfile -t COMPREPLY < <(compgen -W 'raw npy safetensors tar' -- "$2") ;;
    --sort) mapfile -t COMPREPLY < <(compgen -W 'name changed max mean l2 relative cosine size' -- "$2") ;;
    --get)
      mapfile -t COMPREPLY < <(compgen -W 'step state id attempt world_size shards files tensors raw_bytes
        stored_bytes ratio time meta marks detail retired' -- "$2") ;;
    --when-full) mapfile -t COMPREPLY < <(compgen -W 'wait fail skip' -- "$2") ;;
    -C | --directory | --spool | --path) mapfile -t COMPREPLY < <(compgen -d -- "$2") ;;
    -o | --output | --files-from | --have | --state | --metrics-file | --plot) mapfile -t COMPREPLY < <(compgen -f -- "$2") ;;
    --name | --meta | --rank | --world-size | --attempt | --resumed-from | --umask | -j | --jobs | --file | --tensor | \
      --strip-prefix | --sample | --budget | --keep | --keep-* | --remove | --pin | --unpin | --drop-after | --level | --max-chain | \
      --drop | --quantize | --sparsify | --older-than | --tolerance | --depth | --top | --to | --from | --max-staged | \
      --timeout | --bwlimit | --prune | --scrub | --replica | --min-copies | --until-pid | -e | --rsh | --size | --tensors | \
      --ranks | --seed | --steps | --saves | --step-time | --threads | --update | --mtbf) COMPREPLY=() ;;
    *) return 1 ;;
  esac
}

_ckpt() {
  # '=' and '@' break words in bash: the line itself says what is being completed.
  local line=${COMP_LINE:0:COMP_POINT} current previous
  current=${line##*[[:space:]]}
  previous=${line%"$current"}
  previous=${previous%"${previous##*[![:space:]]}"}
  previous=${previous##*[[:space:]]}
  COMPREPLY=()
  if [[ $current == --*=* ]]; then
    _ckpt_value "${current%%=*}" "${current#*=}"
    return
  fi
  if [[ $current == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$(_ckpt_options "$1")" -- "$current")
    [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace 2>/dev/null
    return
  fi
  _ckpt_value "$previous" "$current" && return
  if [[ $current == *@* && -d ${current%@*} ]]; then
    mapfile -t COMPREPLY < <(compgen -W "latest $(ckpt-ls --format=tsv "${current%@*}" 2>/dev/null | cut -f 1)" \
      -- "${current##*@}")
    return
  fi
  compopt -o filenames 2>/dev/null
  mapfile -t COMPREPLY < <(compgen -f -- "$current")
}

complete -F _ckpt ckpt-save ckpt-wait ckpt-serve ckpt-restore ckpt-verify ckpt-ls ckpt-diff ckpt-compress ckpt-prune ckpt-sync ckpt-bench ckpt-run
