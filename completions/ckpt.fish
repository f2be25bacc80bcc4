# SPDX-License-Identifier: Apache-2.0
# fish completion for the ckpt commands: what all share, then what each has of its own; steps after STORE@.

function __ckpt_steps
    set -l word (commandline -ct)
    set -l store (string replace -r '@[^/]*$' '' -- $word)
    test "$store" != "$word" -a -d "$store"; or return
    printf '%s@latest\n' $store
    for step in (ckpt-ls --format=tsv -- $store 2>/dev/null | cut -f 1)
        printf '%s@%s\n' $store $step
    end
end

for c in ckpt-save ckpt-wait ckpt-serve ckpt-restore ckpt-verify ckpt-ls ckpt-diff ckpt-compress ckpt-prune ckpt-sync
    complete -c $c -a '(__ckpt_steps)'
    complete -c $c -l format -x -a 'human tsv json' -d 'Form of the report'
    complete -c $c -l json -d 'The same as --format=json'
    complete -c $c -s 0 -l null -d 'NUL ends records'
    complete -c $c -s q -l quiet -d 'No warnings, hints and progress'
    complete -c $c -s v -l verbose -d 'Say more'
    complete -c $c -l color -x -a 'auto always never' -d Colour
    complete -c $c -l progress -d 'Show progress also without a terminal'
    complete -c $c -l no-progress -d 'Never show progress'
    complete -c $c -l log-json -d 'Messages as JSON lines'
    complete -c $c -s h -l help -d 'Print help'
    complete -c $c -s V -l version -d 'Print the version'
    complete -c $c -s j -l jobs -x -d 'Worker threads'
end

for c in ckpt-save ckpt-serve ckpt-verify ckpt-compress ckpt-prune
    complete -c $c -l metrics-file -r -F -d 'Results for Prometheus'
end

complete -c ckpt-save -s C -l directory -x -a '(__fish_complete_directories)' -d 'Names as given, relative to this'
complete -c ckpt-save -l files-from -r -F -d 'More sources, one a line'
complete -c ckpt-save -l name -x -d 'The name of standard input'
complete -c ckpt-save -l owner -d 'Keep owner and group'
complete -c ckpt-save -l allow-malformed -d 'Save a damaged file as plain bytes'
complete -c ckpt-save -l meta -x -d 'Keep KEY=VALUE with the checkpoint'
complete -c ckpt-save -l rank -x -d 'Rank of this shard'
complete -c ckpt-save -l world-size -x -d 'Number of shards'
complete -c ckpt-save -l attempt -x -d 'Life of the job'
complete -c ckpt-save -l resumed-from -x -d 'Retire what is newer'
complete -c ckpt-save -l replace -d 'Take the place of other content'
complete -c ckpt-save -l base -x -a 'auto none' -d 'Keep differences from this checkpoint'
complete -c ckpt-save -l encode -x -a 'raw fast best' -d 'How hard to pack'
complete -c ckpt-save -l no-check -d 'Believe what was encoded'
complete -c ckpt-save -l no-create -d 'The store must exist'
complete -c ckpt-save -l read-back -d 'Read again and check before the commit'
complete -c ckpt-save -l umask -x -d 'Permissions not given'
complete -c ckpt-save -l detach -d 'End once it is staged'
complete -c ckpt-save -l consume -d 'Move the input away'
complete -c ckpt-save -l spool -x -a '(__fish_complete_directories)' -d 'Stage in this directory'
complete -c ckpt-save -l to -x -d 'Stage in this queue'
complete -c ckpt-save -l durable -d 'Wait until a server has stored it'
complete -c ckpt-save -l max-staged -x -d 'No more than this at once'
complete -c ckpt-save -l when-full -x -a 'wait fail skip' -d 'What to do then'
complete -c ckpt-save -l timeout -x -d 'Wait no longer than this'

complete -c ckpt-wait -l timeout -x -d 'Wait no longer than this'
complete -c ckpt-wait -l spool -x -a '(__fish_complete_directories)' -d 'Look here too'

complete -c ckpt-serve -l spool -x -a '(__fish_complete_directories)' -d 'Drain this spool too'
complete -c ckpt-serve -l from -x -d 'Read this queue'
complete -c ckpt-serve -l until-idle -d 'End once nothing is staged'
complete -c ckpt-serve -l replica -x -a '(__fish_complete_directories)' -d 'Bring this store alike as well'
complete -c ckpt-serve -s e -l rsh -x -d 'The remote shell'
complete -c ckpt-serve -l prune -x -d 'Remove checkpoints by this policy'
complete -c ckpt-serve -l scrub -x -d 'Verify every byte at this rate'
complete -c ckpt-serve -l compress -d 'The newest in full, older ones against newer'

complete -c ckpt-restore -l file -x -d 'These files only'
complete -c ckpt-restore -l rank -x -d 'Shard of this rank only'
complete -c ckpt-restore -l fallback -d 'Take the newest good checkpoint'
complete -c ckpt-restore -l allow-lossy -d 'Also one that has lost values'
complete -c ckpt-restore -l from -x -a '(__fish_complete_directories)' -d 'A replica for what is damaged here'
complete -c ckpt-restore -s e -l rsh -x -d 'The remote shell'
complete -c ckpt-restore -l tensor -x -d 'Export these tensors'
complete -c ckpt-restore -l full -d 'Join the parts that shards hold'
complete -c ckpt-restore -l as -x -a 'raw npy safetensors pt tar' -d 'Format of the export'
complete -c ckpt-restore -l strip-prefix -x -d 'From the front of exported names'
complete -c ckpt-restore -s o -l output -r -F -d 'One file, or the export'
complete -c ckpt-restore -l by-rank -d 'Each shard into its own directory'
complete -c ckpt-restore -s f -l force -d 'Replace files in the way'

complete -c ckpt-verify -l quick -d 'Sizes and index checksums only'
complete -c ckpt-verify -l deep -d 'Decode every block'
complete -c ckpt-verify -l finite -d 'Name tensors that hold NaN or Inf'
complete -c ckpt-verify -l sample -x -d 'Share of the bytes'
complete -c ckpt-verify -l budget -x -d 'Stop after this time'
complete -c ckpt-verify -l bwlimit -x -d 'Read no more in a second'
complete -c ckpt-verify -l repair -d 'Mend single flipped bits'
complete -c ckpt-verify -l from -x -a '(__fish_complete_directories)' -d 'With --repair, a replica to ask'
complete -c ckpt-verify -s e -l rsh -x -d 'The remote shell'
complete -c ckpt-verify -l state -r -F -d 'Keep results in this file'

complete -c ckpt-ls -l pending -d 'Saves that are not durable'
complete -c ckpt-ls -l spool -x -a '(__fish_complete_directories)' -d 'Look into this spool too'
complete -c ckpt-ls -l retired -d 'Checkpoints left behind'
complete -c ckpt-ls -l tensors -d 'Tensors of a checkpoint'
complete -c ckpt-ls -l tensor -x -d 'These tensors only'
complete -c ckpt-ls -l stats -d 'Smallest, largest, mean, norm, NaN, Inf'
complete -c ckpt-ls -l sums -d 'Checksums of the files'
complete -c ckpt-ls -l get -x -a 'step state id attempt world_size shards files tensors raw_bytes stored_bytes ratio time meta marks detail retired' -d 'One field'
complete -c ckpt-ls -l exists -d 'Is there a good checkpoint'

complete -c ckpt-diff -l tolerance -x -d 'What is the same: ABS[,REL]'
complete -c ckpt-diff -l whole -d 'Numbers of all elements'
complete -c ckpt-diff -s s -l summarize -d 'Sums for each module'
complete -c ckpt-diff -l depth -x -d 'Modules of at most so many keys'
complete -c ckpt-diff -l sort -x -a 'name changed max mean l2 relative cosine size' -d Order
complete -c ckpt-diff -l top -x -d 'The first ones only'
complete -c ckpt-diff -l plot -r -F -d 'Draw where the change is'

complete -c ckpt-compress -l encode -x -a 'fast best' -d 'How hard to pack'
complete -c ckpt-compress -l level -x -d "zstd's level"
complete -c ckpt-compress -l max-chain -x -d 'Bases behind one another'
complete -c ckpt-compress -l base -x -a 'auto none' -d 'Store against this checkpoint'
complete -c ckpt-compress -l newest-full -d 'The newest in full, older ones against newer'
complete -c ckpt-compress -l across-ranks -d 'What ranks have in common is stored once'
complete -c ckpt-compress -l rebase -d 'Without others'
complete -c ckpt-compress -l drop -x -d 'Values become zero'
complete -c ckpt-compress -l quantize -x -d 'Values are rounded: PATTERN=TYPE'
complete -c ckpt-compress -l sparsify -x -d 'The smallest become zero: PATTERN=SHARE'
complete -c ckpt-compress -l older-than -x -d 'Those older than this'
complete -c ckpt-compress -s n -l dry-run -d 'Estimate only'

complete -c ckpt-prune -l keep-last -x -d 'The newest'
complete -c ckpt-prune -l keep-every -x -d 'Multiples of this'
complete -c ckpt-prune -l keep-within -x -d 'Not older than this'
complete -c ckpt-prune -l keep-hourly -x -d 'The newest of each hour'
complete -c ckpt-prune -l keep-daily -x -d 'The newest of each day'
complete -c ckpt-prune -l keep-weekly -x -d 'The newest of each week'
complete -c ckpt-prune -l keep-best -x -d 'The best by metadata'
complete -c ckpt-prune -l keep -x -d 'This one too'
complete -c ckpt-prune -l remove -x -d 'Not this one'
complete -c ckpt-prune -l pin -x -d 'This one until it is unpinned'
complete -c ckpt-prune -l unpin -x -d 'End a pin'
complete -c ckpt-prune -l drop-after -x -d 'Tensors that only the last keep'
complete -c ckpt-prune -l verified -d 'Nothing while a newer one is unverified'
complete -c ckpt-prune -s n -l dry-run -d 'Decide and print only'

complete -c ckpt-sync -s P -d 'Show progress also without a terminal'
complete -c ckpt-sync -l replace -d 'A step with other content gives way'
complete -c ckpt-sync -l delete -d 'Remove what is not at the source'
complete -c ckpt-sync -l gather -d 'Shards of sets travel too'
complete -c ckpt-sync -l min-copies -x -d 'Enough if so many hold it'
complete -c ckpt-sync -l have -r -F -d 'What the other side has'
complete -c ckpt-sync -l watch -d 'Stay, and send each as it is committed'
complete -c ckpt-sync -l until-pid -x -a '(__fish_complete_pids)' -d 'End with this process'
complete -c ckpt-sync -s e -l rsh -x -d 'The remote shell'
complete -c ckpt-sync -s n -l dry-run -d 'Say what would be done'
complete -c ckpt-sync -s i -l itemize-changes -d 'A line for each checkpoint'
complete -c ckpt-sync -l stats -d 'Counts and bytes in the end'
complete -c ckpt-sync -l bwlimit -x -d 'No more than this in a second'
complete -c ckpt-sync -l timeout -x -d 'How long the other side may be silent'
complete -c ckpt-sync -l server -d 'Answer on standard input and output'
