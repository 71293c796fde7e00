// What the controller says of itself and of the fleet's freeze, kept up to date while somebody is signed on.
import type { ServerInfo } from './types'

class Server {
  info = $state.raw<ServerInfo | null>(null)
}

export const server = new Server()
