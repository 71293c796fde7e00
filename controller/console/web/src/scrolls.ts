import { cards } from './cards'

// scrolls makes what is wider than its place reachable by keyboard, and only while it is. Its table is cards on a phone.
export function scrolls(node: HTMLElement): { destroy: () => void } {
  const look = () => {
    if (node.scrollWidth > node.clientWidth + 1) node.tabIndex = 0
    else node.removeAttribute('tabindex')
  }
  const seen = new ResizeObserver(look)
  seen.observe(node)
  if (node.firstElementChild) seen.observe(node.firstElementChild)
  look()
  const table = node.querySelector('table')
  const named = table && cards(table)
  return {
    destroy: () => {
      seen.disconnect()
      named?.destroy()
    },
  }
}
