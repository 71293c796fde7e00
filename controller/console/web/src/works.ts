// What can be done to several machines, and what a new system is given: one rollout each.
import { flag, list, quoted, type Field } from './actions'

export interface Work {
  name: string
  word: string
  fields: Field[]
  // warns is shown before the preview, which has the last word.
  warns?: string
  // spec is the rollout's, without its machines and gates.
  spec(v: Record<string, string>): Record<string, unknown>
  // command is the line that does the same to machines.
  command(v: Record<string, string>): string
}

const image: Field = { key: 'image', label: 'Image', required: true }
const path: Field = { key: 'path', label: 'Way into the installer', choices: ['', 'auto', 'kexec', 'bootnext', 'bmc', 'media'] }
const keys: Field = { key: 'keys', label: 'Public SSH keys of its user, one a line', kind: 'area', lines: 2, hint: 'ssh-ed25519 AAAA… ann@laptop' }
const userData: Field = { key: 'user_data', label: 'User-data for its first boot', kind: 'area', lines: 4, hint: '#cloud-config' }

const seed = (v: Record<string, string>) => {
  const ssh = (v.keys ?? '').split('\n').map((k) => k.trim()).filter(Boolean)
  return ssh.length || v.user_data ? { ssh_authorized_keys: ssh, user_data: v.user_data ?? '' } : undefined
}
const installs = (v: Record<string, string>) => ({ params: { image_ref: v.image ?? '', path: v.path ?? '' }, seed: seed(v) })
const installFlags = (v: Record<string, string>): string =>
  ` --image ${quoted(v.image || 'IMAGE')}${flag('path', v.path)}${v.keys?.trim() ? ' --ssh-key KEY.pub' : ''}${v.user_data ? ' --user-data FILE' : ''}`

const plain = (name: string, word: string, spec: Record<string, unknown>, warns?: string): Work => ({
  name, word, warns, fields: [], spec: () => spec, command: () => `ingot ${name}`,
})

export const works: Work[] = [
  plain('enter-maintenance', 'Enter maintenance', { type: 'ENTER_MAINTENANCE' }),
  plain('exit-maintenance', 'Exit maintenance', { type: 'EXIT_MAINTENANCE' }),
  {
    name: 'provision',
    word: 'Provision',
    warns: 'Each machine leaves service, is installed, and enters service. What its system disk holds is lost.',
    fields: [
      image, keys, userData, path,
      { key: 'test', label: 'Test the hardware before it enters service, for so many seconds (empty: no test)', kind: 'number' },
    ],
    spec: (v) => ({
      action: 'PROVISION', ...installs(v),
      test: v.test ? { duration_seconds: Number(v.test) } : undefined,
    }),
    command: (v) => `ingot provision${installFlags(v)}${v.test ? ` --test --test-duration ${v.test}s` : ''}`,
  },
  {
    name: 'reimage',
    word: 'Reimage',
    warns: 'What the system disks hold is lost.',
    fields: [image, keys, userData, path],
    spec: (v) => ({ type: 'REIMAGE', ...installs(v) }),
    command: (v) => `ingot reimage${installFlags(v)}`,
  },
  {
    name: 'reboot',
    word: 'Reboot',
    warns: 'It interrupts what runs on the machines.',
    fields: [{ key: 'mode', label: 'How', choices: ['graceful', 'force', 'bmc'], value: 'graceful', required: true }],
    spec: (v) => ({ type: 'REBOOT', params: { mode: v.mode ?? 'graceful' } }),
    command: (v) => `ingot reboot${v.mode === 'graceful' ? '' : flag('mode', v.mode)}`,
  },
  {
    name: 'test',
    word: 'Test the hardware',
    fields: [
      { key: 'tests', label: 'Tests (nic, cpu, memory, disk; empty: all)' },
      { key: 'duration', label: 'Seconds that all of it may take', kind: 'number', value: '120', required: true },
    ],
    spec: (v) => ({ type: 'TEST_HARDWARE', params: { tests: list(v.tests).join(','), duration_seconds: v.duration ?? '' } }),
    command: (v) => `ingot test${flag('tests', list(v.tests).join(','))} --duration ${v.duration}s`,
  },
  plain('power on', 'Switch on', { plan_id: 'power-on' }),
  plain('power off', 'Switch off', { plan_id: 'power-off' }, 'What runs on the machines ends.'),
  plain('rma', 'Send for repair', { type: 'RMA' }),
  plain('rma --return', 'Back from repair', { type: 'RMA', plan_id: 'rma-return' }),
  {
    name: 'decommission',
    word: 'Decommission',
    warns: 'Every mode interrupts the machines; reimage, storage-cleanup and full-decommission lose their data.',
    fields: [
      { key: 'mode', label: 'Mode', choices: ['soft-reset', 'reimage', 'storage-cleanup', 'full-decommission'], value: 'soft-reset', required: true },
      { key: 'enter', label: 'Enter maintenance first, where they are not in it', kind: 'check' },
    ],
    spec: (v) => ({ action: 'DECOMMISSION', mode: v.mode?.toUpperCase().replaceAll('-', '_'), enter_maintenance: v.enter === 'yes' }),
    command: (v) => `ingot decommission --mode ${v.mode}${v.enter ? ' --enter-maintenance' : ''}`,
  },
]

// lineFor adds the machines to a command line, and what holds for each verb on several of them.
export function lineFor(work: Work, v: Record<string, string>, ids: string[], filter: string, atOnce: number, failures: number): string {
  const [, name = '', ...rest] = work.command(v).split(' ')
  const group = name === 'power' ? ` ${rest.shift()}` : ''
  const who = ids.length ? (ids.length > 20 ? ` --file FILE-WITH-${ids.length}-NAMES` : ids.map((id) => ' ' + quoted(id)).join('')) : filter ? ` --select ${quoted(filter)}` : ' --all'
  return `ingot ${name}${group}${who}${rest.length ? ' ' + rest.join(' ') : ''}${atOnce ? ` --max-in-flight ${atOnce}` : ''} --max-failures ${failures}`
}
